// Command go-clients runs a session of another Golang client: it reads topics in a group with read_committed, commits,
// and sends what an administrator sends.
//
// Arguments: client (sarama or kafka-go), bootstrap server, group, topics. It writes the number of records, and to
// standard error what an administrator's request returned as error: not every server has each request.
//
// With produce in place of the client, it produces by sarama and its own partitioner. Arguments: bootstrap server, size
// of a value, topic. It reads keys, one on each line in hexadecimal, and writes the partition of each.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

const (
	timeout = 120 * time.Second
	quiet   = 3 * time.Second // without a record, which ends the reading
)

func main() {
	if len(os.Args) < 5 {
		fmt.Fprintln(os.Stderr, "usage: go-clients CLIENT BOOTSTRAP GROUP TOPIC..., or go-clients produce BOOTSTRAP BYTES TOPIC")
		os.Exit(2)
	}
	sessions := map[string]func(context.Context, string, string, []string) (int, error){
		"sarama": bySarama, "kafka-go": byKafkaGo, "produce": produceBySarama,
	}
	session, known := sessions[os.Args[1]]
	if !known {
		fmt.Fprintf(os.Stderr, "go-clients: client %s; expected sarama, kafka-go or produce\n", os.Args[1])
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	count, err := session(ctx, os.Args[2], os.Args[3], os.Args[4:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(count)
}

// report writes the errors of an administrator's requests.
func report(client string, failures ...error) {
	if err := errors.Join(failures...); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", client, err)
	}
}
