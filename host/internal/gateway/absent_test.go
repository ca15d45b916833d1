package gateway

import (
	"strings"
	"testing"
	"time"
)

// Who asks for something of a plugin that cannot be used, or for a resource that may be of it, hears why it cannot.
func TestAnAbsentPluginSaysWhy(t *testing.T) {
	const legacy = `{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{}}}`
	requests := map[string]string{
		"tool":       `"method":"tools/call","params":{"name":"gone__echo"CLAIM}`,
		"prompt":     `"method":"prompts/get","params":{"name":"gone__greet"CLAIM}`,
		"resource":   `"method":"resources/read","params":{"uri":"gone:///a"CLAIM}`,
		"completion": `"method":"completion/complete","params":{"ref":{"type":"ref/resource","uri":"gone:///a"},"argument":{"name":"a","value":"b"}CLAIM}`,
		"method":     `"method":"gone.echo","params":{}`,
		"sub_method": `"method":"gone/echo","params":{}`,
	}
	for setting, why := range map[string]string{
		"absent":   "plugin gone is not available: no license for this machine",
		"refusing": "plugin gone is not available: it opened no session: ",
	} {
		for name, request := range requests {
			if setting == "refusing" && strings.HasSuffix(name, "method") {
				continue // it has said which methods it serves
			}
			for era, claims := range map[string]string{"legacy": "", "modern": "," + claim} {
				t.Run(setting+"_"+name+"_"+era, func(t *testing.T) {
					inWorld(t, setting, func(t *testing.T, w *world) {
						if era == "legacy" {
							w.send(legacy)
						}
						w.send(`{"jsonrpc":"2.0","id":1,` + strings.Replace(request, "CLAIM", claims, 1) + `}`)
						time.Sleep(time.Minute) // virtual time
						settle()
						got := strings.Join(w.out.take(), "\n")
						if !strings.Contains(got, `"id":1,"error":{"code":-32001,`) || !strings.Contains(got, why) || !strings.Contains(got, `"executed":"no"`) {
							t.Errorf("%s", got)
						}
						if setting == "refusing" && !strings.Contains(got, "no such host") {
							t.Errorf("not the reason: %s", got)
						}
					})
				})
			}
		}
	}
}

// What is nobody's is not found, as long as all can be used.
func TestNobodysRequestIsNotFound(t *testing.T) {
	inWorld(t, "one", func(t *testing.T, w *world) {
		w.send(`{"jsonrpc":"2.0","id":1,"method":"else.echo"}`, `{"jsonrpc":"2.0","id":2,"method":"resources/read","params":{"uri":"x:///y",`+claim+`}}`)
		time.Sleep(time.Minute) // virtual time
		settle()
		got := strings.Join(w.out.take(), "\n")
		if !strings.Contains(got, `"id":1,"error":{"code":-32601,`) || !strings.Contains(got, `"id":2,"error":{"code":-32602,`) {
			t.Errorf("%s", got)
		}
	})
}

// A method that is another plugin's by its name is not looked for in one that cannot be used.
func TestAMethodOfAnotherNameIsNotFound(t *testing.T) {
	inWorld(t, "absent", func(t *testing.T, w *world) {
		w.send(`{"jsonrpc":"2.0","id":1,"method":"else.echo"}`)
		time.Sleep(time.Minute) // virtual time
		settle()
		got := strings.Join(w.out.take(), "\n")
		if !strings.Contains(got, `"id":1,"error":{"code":-32601,"message":"no plugin serves the method \"else.echo\"","data"`) || strings.Contains(got, "gone") {
			t.Errorf("%s", got)
		}
	})
}

func TestOwnPrefix(t *testing.T) {
	for asked, want := range map[string]bool{
		"py-clock.now": true, "clock.now": true, "py-clock/now": true, "clock:///x": true,
		"lock.now": false, "py.now": false, "now": false, "": false, ".now": false, "clock": false, "other.clock.now": false,
	} {
		if got := ownPrefix("py-clock", asked); got != want {
			t.Errorf("ownPrefix(py-clock, %q) = %v", asked, got)
		}
	}
}

// A plugin that serves no MCP has no resources, whether it runs or not.
func TestAPluginWithoutMCPHidesNoResource(t *testing.T) {
	inWorld(t, "without_mcp", func(t *testing.T, w *world) {
		w.send(`{"jsonrpc":"2.0","id":1,"method":"gone.echo"}`)
		settle()
		for range 5 { // until it is left alone for a while
			_ = w.newest("gone").conn.Close()
			time.Sleep(6 * time.Second) // virtual time
			settle()
		}
		w.send(`{"jsonrpc":"2.0","id":2,"method":"resources/read","params":{"uri":"gone:///y",` + claim + `}}`)
		settle()
		if why := w.slots[1].Unavailable(); why == "" {
			t.Error("the plugin runs")
		}
		if got := last(w.out.take()); !strings.Contains(got, `"id":2,"error":{"code":-32602,`) {
			t.Errorf("%s", got)
		}
	})
}
