// Orders over Kafka's protocol, with franz-go: writes two, and reads them as a consumer of a group.
//
// What a poll returned is committed when it was printed: after a crash it comes again.
//
//	tidelog topic create orders --partitions 3
//	go run -C examples/go/kafka . 127.0.0.1:9092
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var orders = []*kgo.Record{
	kgo.KeyStringRecord("tea", `{"item": "tea", "count": 2}`),
	kgo.KeyStringRecord("milk", `{"item": "milk", "count": 1}`),
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	check(produce(ctx))
	check(consume(ctx, len(orders)))
}

func produce(ctx context.Context) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(os.Args[1]), kgo.DefaultProduceTopic("orders"))
	check(err)
	defer client.Close()
	return client.ProduceSync(ctx, orders...).FirstErr()
}

func consume(ctx context.Context, count int) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(os.Args[1]),
		kgo.ConsumerGroup("go-kafka"),
		kgo.ConsumeTopics("orders"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
	)
	check(err)
	defer client.Close() // leaves the group
	for read := 0; read < count; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(found *kgo.Record) {
			fmt.Printf("%s-%d@%d: %s\n", found.Topic, found.Partition, found.Offset, found.Value)
		})
		if err := client.CommitUncommittedOffsets(ctx); err != nil {
			return err
		}
		read += fetches.NumRecords()
	}
	return nil
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
