// Command franz-go writes every record of the named topics as a line of JSON, as the client franz-go returns it.
//
// Arguments: bootstrap servers, isolation level (read_uncommitted or read_committed), topics.
//
// Records are in order of topics, partitions and offsets. A partition is complete at the end offset that it had when
// the program began to read it; with read_committed, at the last stable offset. The client returns no position. So
// control records, which can be the last ones, are read and not written. Compaction can have removed the last records.
// Then a partition is complete when no record arrives for some seconds.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	timeout = 300 * time.Second
	quiet   = 10 * time.Second
)

type header [2]any

type record struct {
	Topic         string   `json:"topic"`
	Partition     int32    `json:"partition"`
	Offset        int64    `json:"offset"`
	Timestamp     int64    `json:"timestamp"`
	TimestampType int8     `json:"timestampType"`
	Key           []byte   `json:"key"`
	Value         []byte   `json:"value"`
	Headers       []header `json:"headers"`
}

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: franz-go BOOTSTRAP ISOLATION TOPIC...")
		os.Exit(2)
	}
	if err := dump(os.Args[1], os.Args[2] == "read_committed", os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func dump(bootstrap string, committed bool, topics []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	level := kgo.ReadUncommitted()
	if committed {
		level = kgo.ReadCommitted()
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.FetchIsolationLevel(level), kgo.KeepControlRecords(),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	out := bufio.NewWriterSize(os.Stdout, 1<<20)
	for _, topic := range topics {
		if err := dumpTopic(ctx, client, committed, topic, out); err != nil {
			return err
		}
	}
	return out.Flush()
}

func dumpTopic(ctx context.Context, client *kgo.Client, committed bool, topic string, out *bufio.Writer) error {
	isolation := int8(0)
	if committed {
		isolation = 1
	}
	starts, err := offsets(ctx, client, topic, -2, isolation)
	if err != nil {
		return err
	}
	ends, err := offsets(ctx, client, topic, -1, isolation)
	if err != nil {
		return err
	}
	for _, partition := range sorted(ends) {
		if err := read(ctx, client, topic, partition, starts[partition], ends[partition], out); err != nil {
			return fmt.Errorf("%s-%d: %w", topic, partition, err)
		}
	}
	return nil
}

// offsets returns the offset of each partition for a timestamp: -2 is the first one, -1 the end.
func offsets(ctx context.Context, client *kgo.Client, topic string, at int64, isolation int8) (map[int32]int64, error) {
	meta := kmsg.NewPtrMetadataRequest()
	asked := kmsg.NewMetadataRequestTopic()
	asked.Topic = kmsg.StringPtr(topic)
	meta.Topics = append(meta.Topics, asked)
	described, err := meta.RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	if err := kerr.ErrorForCode(described.Topics[0].ErrorCode); err != nil {
		return nil, fmt.Errorf("%s: %w", topic, err)
	}
	request := kmsg.NewPtrListOffsetsRequest()
	request.IsolationLevel = isolation
	of := kmsg.NewListOffsetsRequestTopic()
	of.Topic = topic
	for _, one := range described.Topics[0].Partitions {
		partition := kmsg.NewListOffsetsRequestTopicPartition()
		partition.Partition, partition.Timestamp = one.Partition, at
		of.Partitions = append(of.Partitions, partition)
	}
	request.Topics = append(request.Topics, of)
	found := map[int32]int64{}
	for _, shard := range client.RequestSharded(ctx, request) {
		if shard.Err != nil {
			return nil, shard.Err
		}
		for _, one := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
			for _, partition := range one.Partitions {
				if err := kerr.ErrorForCode(partition.ErrorCode); err != nil {
					return nil, fmt.Errorf("%s-%d: %w", topic, partition.Partition, err)
				}
				found[partition.Partition] = partition.Offset
			}
		}
	}
	return found, nil
}

func sorted(ends map[int32]int64) []int32 {
	var partitions []int32
	for partition := range ends {
		partitions = append(partitions, partition)
	}
	sort.Slice(partitions, func(i, j int) bool { return partitions[i] < partitions[j] })
	return partitions
}

func read(
	ctx context.Context, client *kgo.Client, topic string, partition int32, start, end int64, out *bufio.Writer,
) error {
	client.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().At(start)}})
	defer client.RemoveConsumePartitions(map[string][]int32{topic: {partition}})
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	for position := start; position < end; {
		waiting, cancel := context.WithTimeout(ctx, quiet)
		fetches := client.PollFetches(waiting)
		cancel()
		for _, failed := range fetches.Errors() {
			if errors.Is(failed.Err, context.DeadlineExceeded) && ctx.Err() == nil {
				return nil
			}
			return failed.Err
		}
		var wrong error
		fetches.EachRecord(func(one *kgo.Record) {
			position = one.Offset + 1
			if one.Attrs.IsControl() || one.Offset >= end || wrong != nil {
				return
			}
			headers := []header{}
			for _, pair := range one.Headers {
				headers = append(headers, header{pair.Key, pair.Value})
			}
			milliseconds := int64(-1)
			if !one.Timestamp.IsZero() {
				milliseconds = one.Timestamp.UnixMilli()
			}
			wrong = encoder.Encode(record{
				one.Topic, one.Partition, one.Offset, milliseconds, one.Attrs.TimestampType(), one.Key, one.Value, headers,
			})
		})
		if wrong != nil {
			return wrong
		}
	}
	return nil
}
