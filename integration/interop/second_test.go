//go:build interop && !windows

package interop

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sox-host/sox-host/integration/internal/rig"
)

// A server of the second generation of the TypeScript SDK, with both eras or the modern one alone, serves clients of both: calls, progress, questions
// in several rounds, resources, and an upgrade with a call in flight.
func TestSecondGenerationServer(t *testing.T) {
	t.Parallel()
	for _, eras := range []string{"serve", "reject"} { // legacy clients
		for _, revision := range []string{"2025-11-25", "2026-07-28"} {
			t.Run(eras+"_"+revision, func(t *testing.T) {
				t.Parallel()
				p := rig.NewPlace(t)
				server := filepath.Join(here(), "server.mjs")
				wrap(t, p, "second", "1.0.0", nil, server, eras)
				c := newGoClient(revision)
				if got := c.connect(t, p, slices.Concat([]string{p.HostProgram(), "serve"}, patientLists)); got != revision {
					t.Errorf("agreed on %s", got)
				}
				if tools, want := c.tools(t), []string{"second__echo", "second__build", "second__count", "second__ask", "second__touch"}; !slices.Equal(tools, want) {
					t.Errorf("tools %v", tools)
				}
				works := func(build string) {
					t.Helper()
					for tool, want := range map[string]string{"echo": "hello", "build": build, "ask": "Ada Ada"} {
						if text := mustCall(t, c, "second__"+tool, object{"message": "hello"}).text(); text != want {
							t.Errorf("%s: %q, want %q", tool, text, want)
						}
					}
					if text := c.read(t, "note:one"); text != "one" {
						t.Errorf("resource: %q", text)
					}
				}
				works("1.0.0")

				reports := make(chan float64, 100)
				done := make(chan string, 1)
				go func() {
					r, err := c.call(t.Context(), "second__count", object{"to": 30}, func(progress float64) { reports <- progress })
					if err != nil {
						done <- err.Error()
						return
					}
					done <- r.text()
				}()
				select {
				case <-reports:
				case <-time.After(rig.Patience):
					t.Fatal("no progress")
				}
				wrap(t, p, "second", "1.1.0", nil, server, eras)
				p.MustCommand("upgrade", "second")
				works("1.1.0")
				if text := <-done; !strings.Contains(text, "counted to 30") {
					t.Errorf("the call in flight: %q", text)
				}
				if n := len(c.changed()); n != 0 {
					t.Errorf("%d list_changed, and the tools are the same", n)
				}
				c.close(t)
				expectClosed(p)
			})
		}
	}
}
