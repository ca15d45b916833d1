// Call calls one method of a JSON-RPC server that is started for it, with the client of the folder above.
//
//	go run ./examples/clients/go/call notes.get_backlinks '{"path":"engineering/storage.md"}' -- sox-host serve
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	client "github.com/sox-host/sox-host/examples/clients/go"
)

func main() {
	timeout := flag.Duration("timeout", client.DefaultTimeout, "how long to wait for the answer")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), "usage: call [-timeout 60s] METHOD [PARAMS] -- COMMAND [ARGUMENT ...]\n")
	}
	ours, command := os.Args[1:], []string(nil)
	if i := slices.Index(ours, "--"); i >= 0 {
		ours, command = ours[:i], ours[i+1:]
	}
	_ = flag.CommandLine.Parse(ours) // exits by itself
	params := json.RawMessage(flag.Arg(1))
	if len(params) == 0 {
		params = json.RawMessage("{}")
	}
	if flag.NArg() < 1 || flag.NArg() > 2 || len(command) == 0 || !json.Valid(params) {
		flag.Usage()
		os.Exit(2)
	}
	if err := demonstrate(flag.Arg(0), params, command, *timeout); err != nil {
		fmt.Fprintf(os.Stderr, "call: %v\n", err)
		os.Exit(1)
	}
}

func demonstrate(method string, params json.RawMessage, command []string, timeout time.Duration) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt) // Ctrl-C cancels the call
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c, err := client.Start(command, client.Options{})
	if err != nil {
		return err
	}
	defer func() {
		if ended := c.Close(); err == nil {
			err = ended
		}
	}()
	if strings.Contains(method, "/") { // a method of MCP needs a session
		if err := c.Initialize(ctx, "go-client", "1.0.0"); err != nil {
			return err
		}
	}
	result, err := c.Call(ctx, method, params)
	if err != nil {
		return err
	}
	_, err = fmt.Printf("%s\n", result)
	return err
}
