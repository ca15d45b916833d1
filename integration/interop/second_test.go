//go:build interop && !windows

package interop

import (
	"fmt"
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

// Clients of both eras hear of the changes of a resource from such a server, which does not answer a listen that is cancelled.
func TestSecondGenerationSubscriptions(t *testing.T) {
	t.Parallel()
	for _, eras := range []string{"serve", "reject"} {
		for _, modern := range []bool{false, true} {
			if eras == "serve" && !modern { // towards its own legacy clients this SDK leaves subscriptions to the author
				continue
			}
			t.Run(fmt.Sprintf("%s_modern=%v", eras, modern), func(t *testing.T) {
				t.Parallel()
				p := rig.NewPlace(t)
				wrap(t, p, "second", "1.0.0", nil, filepath.Join(here(), "server.mjs"), eras)
				c := open(t, p.Serve(patientLists...), "second__", modern, object{})
				const uri = "note:one"
				if modern {
					listen := c.begin("subscriptions/listen", object{"notifications": object{"resourceSubscriptions": []string{uri}}})
					c.AwaitMessages("notifications/subscriptions/acknowledged", 1)
					p.Await("the server is asked for it, and tells of a change", func() bool {
						c.tool("touch", nil)
						return len(c.Messages("notifications/resources/updated")) > 0
					})
					c.Cancel(listen)
					return
				}
				// Whatever the client asks for behind the answer, the server is listening.
				for _, other := range []string{"note:two", uri} {
					if a := c.ask("resources/subscribe", object{"uri": other}); a.Error != nil {
						t.Errorf("subscribe: %s", a)
					}
				}
				c.tool("touch", nil)
				if m := c.AwaitMessages("notifications/resources/updated", 1)[0]; string(m.Params) != `{"uri":"note:one"}` {
					t.Errorf("updated %s", m.Params)
				}
				if a := c.ask("resources/unsubscribe", object{"uri": "note:two"}); a.Error != nil {
					t.Errorf("unsubscribe: %s", a)
				}
				c.tool("touch", nil)
				c.AwaitMessages("notifications/resources/updated", 2)
				if a := c.ask("resources/unsubscribe", object{"uri": uri}); a.Error != nil {
					t.Errorf("unsubscribe: %s", a)
				}
				c.tool("touch", nil)
				c.tool("echo", object{"message": "behind it"})
				if n := len(c.Messages("notifications/resources/updated")); n != 2 {
					t.Errorf("%d updates, want 2", n)
				}
			})
		}
	}
}
