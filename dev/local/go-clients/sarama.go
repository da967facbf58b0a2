package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
)

// claims counts the records of a group session, and marks them.
type claims struct {
	count atomic.Int64
	last  atomic.Int64
}

func (c *claims) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (c *claims) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (c *claims) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		c.count.Add(1)
		c.last.Store(time.Now().UnixNano())
		session.MarkMessage(message, "")
	}
	session.Commit()
	return nil
}

func bySarama(ctx context.Context, bootstrap, group string, topics []string) (int, error) {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	client, err := sarama.NewClient([]string{bootstrap}, config)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	consumer, err := sarama.NewConsumerGroupFromClient(group, client)
	if err != nil {
		return 0, err
	}
	read := &claims{}
	read.last.Store(time.Now().Add(quiet).UnixNano())
	reading, stop := context.WithCancel(ctx)
	go func() {
		for time.Since(time.Unix(0, read.last.Load())) < quiet {
			time.Sleep(50 * time.Millisecond)
		}
		stop()
	}()
	for reading.Err() == nil {
		if err := consumer.Consume(reading, topics, read); err != nil && !errors.Is(err, context.Canceled) {
			return 0, err
		}
	}
	stop()
	if err := consumer.Close(); err != nil {
		return 0, err
	}
	return int(read.count.Load()), administerBySarama(client, group, topics)
}

func administerBySarama(client sarama.Client, group string, topics []string) error {
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return err
	}
	partitions := map[string][]int32{}
	for _, topic := range topics {
		numbers, err := client.Partitions(topic)
		if err != nil {
			return err
		}
		partitions[topic] = numbers
		for _, at := range []int64{sarama.OffsetNewest, sarama.OffsetOldest, 1_700_000_100_000} {
			if _, err := client.GetOffset(topic, numbers[0], at); err != nil {
				return fmt.Errorf("offset of %s at %d: %w", topic, at, err)
			}
		}
	}
	_, listed := admin.ListTopics()
	_, _, described := admin.DescribeCluster()
	_, groups := admin.ListConsumerGroups()
	_, ours := admin.DescribeConsumerGroups([]string{group})
	_, offsets := admin.ListConsumerGroupOffsets(group, partitions)
	_, settings := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topics[0]})
	deleted := admin.DeleteConsumerGroupOffset(group, topics[0], 0)
	report("sarama", listed, described, groups, ours, offsets, settings, deleted)
	return nil
}
