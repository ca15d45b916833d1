// Counter keeps a number in memory and hands it to the version that replaces it: after an upgrade, a rollback or a restart it goes on counting where
// it was.
//
//	go build -ldflags "-X main.version=1.0.0" -o ~/.sox/plugins/counter_v1.0.0 ./examples/counter
//	sox-host upgrade counter
//
// A crash loses the number: what has to survive one belongs on disk.
package main

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/sox-host/sox-host/sdk"
)

// version is set at build time: -ldflags "-X main.version=1.1.0".
var version = "1.0.0"

// state travels from one version to the next, as JSON. A later version may add members; it still has to understand what the one before hands over,
// and a rollback hands its state to the one before.
type state struct {
	Count int64 `json:"count"`
}

type counted struct {
	Count   int64  `json:"count"`
	Version string `json:"version" jsonschema:"the version that counted"`
}

// newPlugin is in a function of its own so that tests can make one.
func newPlugin() *sdk.Plugin {
	var count atomic.Int64
	// Two versions that count at the same time would give a number twice. An exclusive plugin is never run twice: calls wait while it is swapped.
	p := sdk.New("counter", version, sdk.WithTitle("Counter"), sdk.Exclusive())
	next := func(context.Context, struct{}) (counted, error) { return counted{count.Add(1), version}, nil }
	sdk.Tool(p, "next", "Give the next number.", next)
	sdk.Method(p, "counter.next", next)
	sdk.State(p,
		func(context.Context) (state, error) { return state{count.Load()}, nil },
		func(_ context.Context, s state) error {
			if s.Count < 0 {
				return fmt.Errorf("count is %d", s.Count) // an error here stops the upgrade; the old version goes on
			}
			count.Store(s.Count)
			return nil
		})
	return p
}

func main() { sdk.Main(newPlugin()) }
