// Orders over HTTP, with Go's standard library alone: writes three, and reads them as a consumer of a group.
//
// The broker is the consumer, and remembers where the group is. A page is committed when it was printed: after a crash
// it comes again.
//
//	tidelog topic create orders --partitions 3
//	go run examples/go/http.go http://127.0.0.1:8082
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"
)

const (
	v2   = "application/vnd.kafka.v2+json"
	text = "application/vnd.kafka.text.v2+json" // keys and values are strings
)

type record struct {
	Key       string `json:"key"`
	Value     string `json:"value"`
	Partition *int   `json:"partition,omitempty"` // said by the broker
	Offset    int64  `json:"offset,omitempty"`
}

var client = http.Client{Timeout: 30 * time.Second}

// ask makes a request with a JSON body, and fills in the answer unless that is nil.
func ask(method, path, kind string, body, answer any) {
	encoded, err := json.Marshal(body)
	check(err)
	if body == nil {
		encoded = nil
	}
	request, err := http.NewRequest(method, os.Args[1]+path, bytes.NewReader(encoded))
	check(err)
	request.Header = http.Header{"Content-Type": {kind}, "Accept": {kind}}
	response, err := client.Do(request)
	check(err)
	defer response.Body.Close()
	if response.StatusCode >= 300 {
		log.Fatalf("%s %s: %s", method, path, response.Status)
	}
	if answer != nil {
		check(json.NewDecoder(response.Body).Decode(answer))
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	orders := []record{{Key: "tea", Value: `{"item": "tea", "count": 2}`}, {Key: "milk", Value: `{"item": "milk", "count": 1}`}}
	ask("POST", "/topics/orders", text, map[string]any{"records": orders}, nil)

	created := map[string]string{}
	ask("POST", "/consumers/go-http", v2, map[string]any{"format": "text", "auto.offset.reset": "earliest"}, &created)
	instance := "/consumers/go-http/instances/" + created["instance_id"]
	defer ask("DELETE", instance, v2, nil, nil) // its partitions go to others at once
	ask("POST", instance+"/subscription", v2, map[string]any{"topics": []string{"orders"}}, nil)
	for read := 0; read < len(orders); {
		var page []record
		ask("GET", instance+"/records?timeout=5000", text, nil, &page)
		for _, found := range page {
			fmt.Printf("orders-%d@%d: %s\n", *found.Partition, found.Offset, found.Value)
		}
		ask("POST", instance+"/offsets", v2, nil, nil)
		read += len(page)
	}
}
