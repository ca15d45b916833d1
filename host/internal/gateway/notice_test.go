package gateway

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sox-host/sox-host/plugin/schema"
)

// Whoever hears that the tools have changed finds the new one in the list and can call it, a thousand times out of a
// thousand: both are asked for in the moment in which the notice comes. The tool before is gone.
func TestToolIsThereWithItsNotice(t *testing.T) {
	const rounds = 1000
	const notice = "notifications/tools/list_changed"
	inWorld(t, "growing", func(t *testing.T, w *world) {
		w.send(`{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{}}}`,
			`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
			`{"jsonrpc":"2.0","id":"first","method":"tools/list"}`)
		w.out.await(`"id":"first"`)
		heard := 0
		for i := range rounds {
			w.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":"g%d","method":"tools/call","params":{"name":"demo__grow"}}`, i))
			lines := w.out.await(notice)
			w.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":"l%d","method":"tools/list"}`, i),
				fmt.Sprintf(`{"jsonrpc":"2.0","id":"c%d","method":"tools/call","params":{"name":"demo__grown_%d"}}`, i, i+1))
			// The plugin answers the call, so what the host answers by itself has come before it.
			lines = append(lines, w.out.await(fmt.Sprintf(`"id":"c%d"`, i))...)
			for _, line := range lines {
				switch {
				case strings.Contains(line, notice):
					heard++
				case strings.Contains(line, fmt.Sprintf(`"id":"l%d"`, i)):
					if !strings.Contains(line, fmt.Sprintf(`"demo__grown_%d"`, i+1)) || strings.Contains(line, fmt.Sprintf(`"demo__grown_%d"`, i)) {
						t.Errorf("round %d: the list is %s", i, line)
					}
				case strings.Contains(line, fmt.Sprintf(`"id":"c%d"`, i)):
					if want := fmt.Sprintf(`"result":{"params":{"name":"grown_%d"}}`, i+1); !strings.Contains(line, want) {
						t.Errorf("round %d: the call is answered with %s", i, line)
					}
				}
			}
			if t.Failed() {
				return
			}
		}
		if heard != rounds {
			t.Errorf("%d notices of %d changes", heard, rounds)
		}
	})
}

// A client that is about to be given a list which has just changed hears of the change, though the check for it was over
// before the list counted as told.
func TestListThatChangesWhileItIsAnswered(t *testing.T) {
	const notice = "notifications/tools/list_changed"
	inWorld(t, "growing", func(t *testing.T, w *world) {
		w.send(`{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{}}}`,
			`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
			`{"jsonrpc":"2.0","id":"l","method":"tools/list"}`)
		w.out.await(`"id":"l"`)
		e := w.session.legacy
		before := e.view.now.Load()
		w.send(`{"jsonrpc":"2.0","id":"g","method":"tools/call","params":{"name":"demo__grow"}}`)
		w.out.await(notice)
		w.session.tells(e, schema.Tools, before) // an answer that took the list before, and comes only now
		w.out.await(notice)
	})
}
