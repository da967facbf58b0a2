package main

import (
	"context"
	"errors"
	"time"

	"github.com/segmentio/kafka-go"
)

func byKafkaGo(ctx context.Context, bootstrap, group string, topics []string) (int, error) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{bootstrap}, GroupID: group, GroupTopics: topics,
		IsolationLevel: kafka.ReadCommitted, StartOffset: kafka.FirstOffset,
		MinBytes: 1, MaxBytes: 1 << 20, MaxWait: 500 * time.Millisecond,
	})
	count, last := 0, map[string]map[int]kafka.Message{}
	for {
		wait := quiet
		if count == 0 {
			wait = timeout // the group forms
		}
		waiting, cancel := context.WithTimeout(ctx, wait)
		message, err := reader.FetchMessage(waiting)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil && count > 0 {
			break
		}
		if err != nil {
			return count, err
		}
		count++
		if last[message.Topic] == nil {
			last[message.Topic] = map[int]kafka.Message{}
		}
		last[message.Topic][message.Partition] = message
	}
	for _, partitions := range last {
		for _, message := range partitions {
			if err := reader.CommitMessages(ctx, message); err != nil {
				return count, err
			}
		}
	}
	if err := reader.Close(); err != nil {
		return count, err
	}
	administerByKafkaGo(ctx, bootstrap, group, topics)
	return count, nil
}

func administerByKafkaGo(ctx context.Context, bootstrap, group string, topics []string) {
	client := &kafka.Client{Addr: kafka.TCP(bootstrap), Timeout: 10 * time.Second}
	_, listed := client.Metadata(ctx, &kafka.MetadataRequest{})
	requests := map[string][]kafka.OffsetRequest{}
	committed := map[string][]int{}
	for _, topic := range topics {
		requests[topic] = []kafka.OffsetRequest{
			kafka.FirstOffsetOf(0), kafka.LastOffsetOf(0), kafka.TimeOffsetOf(0, time.UnixMilli(1_700_000_100_000)),
		}
		committed[topic] = []int{0}
	}
	_, offsets := client.ListOffsets(ctx, &kafka.ListOffsetsRequest{
		Topics: requests, IsolationLevel: kafka.ReadCommitted,
	})
	_, groups := client.ListGroups(ctx, &kafka.ListGroupsRequest{})
	_, described := client.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{group}})
	_, fetched := client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: group, Topics: committed})
	_, settings := client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: topics[0],
		}},
	})
	_, deleted := client.OffsetDelete(ctx, &kafka.OffsetDeleteRequest{
		GroupID: group, Topics: map[string][]int{topics[0]: {0}},
	})
	report("kafka-go", listed, offsets, groups, described, fetched, settings, deleted)
}
