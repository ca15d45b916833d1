package gateway

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sox-host/sox-host/host/internal/slot"
)

// A plugin that is added at the very moment in which a client begins to talk is told of that client: by whoever adds
// it, or by whoever opens the era.
func TestAPluginThatIsAddedWhileAnEraIsOpenedIsTold(t *testing.T) {
	const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{}}}`
	const before = 3
	var names []string
	plugins := map[string]func() *fakePlugin{}
	for i := range before + 1 {
		names = append(names, fmt.Sprintf("p%d", i))
		plugins[names[i]+" 1.0.0"] = demo(tool("echo"))
	}
	for range 60 { // the two meet in some of them
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, Config{Prefixed: true}, names, plugins)
			for _, name := range w.names {
				if err := w.prime(name); err != nil {
					t.Fatal(err)
				}
			}
			w.gw.SetSlots(w.slots[:before])
			var both sync.WaitGroup
			both.Go(func() { w.send(initialize) })
			both.Go(func() {
				for !w.slots[0].Arriving(slot.Profile{}) { // the first has been asked, the others are being
					runtime.Gosched()
				}
				w.gw.SetSlots(w.slots)
			})
			both.Wait()
			time.Sleep(time.Second) // virtual time
			w.out.take()
			w.send(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
			settle()
			if got := strings.Join(w.out.take(), "\n"); !strings.Contains(got, names[before]+"__echo") {
				t.Errorf("the list: %s", got)
			}
			w.close()
		})
		if t.Failed() {
			return
		}
	}
}
