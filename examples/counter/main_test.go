package main

import (
	"encoding/json"
	"testing"

	"github.com/sox-host/sox-host/plugin/wire"
	"github.com/sox-host/sox-host/sdk/sdktest"
)

func TestConformance(t *testing.T) { sdktest.Conformance(t, newPlugin()) }

// What one instance hands over is what the next one goes on with; a state that makes no sense is refused and changes nothing.
func TestStateMoves(t *testing.T) {
	next := func(h *sdktest.Host) int64 {
		t.Helper()
		raw, err := h.Root().Call("counter.next", nil)
		var c counted
		if err != nil || json.Unmarshal(raw, &c) != nil {
			t.Fatalf("counter.next: %s, %v", raw, err)
		}
		return c.Count
	}
	old, successor := sdktest.Start(t, newPlugin()), sdktest.Start(t, newPlugin())
	for want := int64(1); want <= 3; want++ {
		if got := next(old); got != want {
			t.Errorf("%d, want %d", got, want)
		}
	}
	snapshot, err := old.Root().Call(wire.MethodSnapshot, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := successor.Root().Call(wire.MethodRestore, snapshot); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{`{"state":{"count":-1}}`, `{"state":"many"}`, `{}`} {
		if _, err := successor.Root().Call(wire.MethodRestore, json.RawMessage(bad)); err == nil {
			t.Errorf("the state %s is taken", bad)
		}
	}
	if got := next(successor); got != 4 {
		t.Errorf("the successor gives %d, want 4", got)
	}
}
