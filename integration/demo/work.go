package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sox-host/sox-host/integration/internal/history"
)

// The questions the workers ask.
var (
	queries = []string{"storage", "deploy", "incident", "review", "backup restore", "on call"}
	paths   = []string{"engineering/storage.md", "engineering/deploys.md", "runbooks/ops.md", "architecture/manifesto.md", "people/onboarding.md"}
)

// thinking is how long a worker does something else between two calls: 5 ms. Without it the demo measures how busy two cores can be.
const thinking = 5 * time.Millisecond

// crew are the workers.
type crew struct {
	ended chan struct{}
	done  sync.WaitGroup
}

// work starts the workers. They end with stop.
func (s *show) work(ctx context.Context) *crew {
	c := &crew{ended: make(chan struct{})}
	for n := range workers {
		c.done.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-c.ended:
					return
				case <-ctx.Done():
					return
				case <-time.After(thinking):
				}
				s.call(ctx, fmt.Sprintf("w%d-%d", n, i))
			}
		})
	}
	return c
}

func (c *crew) stop() {
	close(c.ended)
	c.done.Wait()
}

// call makes one call and records it. The nonce travels as the trace of the call, which notes writes into its journal.
func (s *show) call(ctx context.Context, nonce string) {
	op := s.record.Invoke(nonce, nonce, "notes", history.Once)
	err := s.ask(ctx, mcp.Meta{"traceparent": nonce})
	outcome, detail := history.OK, ""
	if err != nil {
		outcome, detail = history.Failed, err.Error()
	}
	s.record.Answer(nonce, outcome, "", detail)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, timed{op.Invoked, s.record.Now()})
}

// ask asks one of several things.
func (s *show) ask(ctx context.Context, meta mcp.Meta) error {
	path := paths[rand.IntN(len(paths))]
	params := &mcp.CallToolParams{Meta: meta, Name: "notes__backlinks", Arguments: map[string]any{"path": path}}
	switch rand.IntN(4) {
	case 0:
		r, err := s.client.ReadResource(ctx, &mcp.ReadResourceParams{Meta: meta, URI: "note:///" + path})
		if err == nil && (len(r.Contents) != 1 || r.Contents[0].Text == "") {
			err = fmt.Errorf("%s is empty", path)
		}
		return err
	case 1:
		params.Name, params.Arguments = "notes__search", map[string]any{"query": queries[rand.IntN(len(queries))]}
	case 2:
		params.Name = "notes__read_note"
	}
	r, err := s.client.CallTool(ctx, params)
	if err == nil && r.IsError {
		err = fmt.Errorf("%s: %+v", params.Name, r.Content)
	}
	return err
}
