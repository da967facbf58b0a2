package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"

	"github.com/IBM/sarama"
)

// produceBySarama produces a record for each key of standard input, and returns their number.
func produceBySarama(_ context.Context, bootstrap, size string, topics []string) (int, error) {
	length, err := strconv.Atoi(size)
	if err != nil {
		return 0, err
	}
	config := sarama.NewConfig()
	config.Producer.Return.Successes = true
	config.Producer.Flush.MaxMessages = 20 // of a batch, which must be smaller than a segment of the topic
	producer, err := sarama.NewSyncProducer([]string{bootstrap}, config)
	if err != nil {
		return 0, err
	}
	defer producer.Close()
	var messages []*sarama.ProducerMessage
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		key, err := hex.DecodeString(lines.Text())
		if err != nil {
			return 0, err
		}
		messages = append(messages, &sarama.ProducerMessage{
			Topic: topics[0], Key: sarama.ByteEncoder(key), Value: sarama.ByteEncoder(make([]byte, length)),
		})
	}
	if err := lines.Err(); err != nil {
		return 0, err
	}
	if err := producer.SendMessages(messages); err != nil {
		return 0, err
	}
	for _, message := range messages {
		fmt.Println(message.Partition)
	}
	return len(messages), nil
}
