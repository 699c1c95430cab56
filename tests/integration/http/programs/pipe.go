// Streams standard input to a URL through an io.Pipe, and prints the status and the answer.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
)

func main() {
	reader, writer := io.Pipe()
	go func() {
		_, err := io.Copy(writer, os.Stdin)
		writer.CloseWithError(err)
	}()
	answer, err := http.Post(os.Args[1], os.Args[2], reader)
	if err != nil {
		panic(err)
	}
	defer answer.Body.Close()
	fmt.Println(answer.StatusCode)
	if _, err := io.Copy(os.Stdout, answer.Body); err != nil {
		panic(err)
	}
}
