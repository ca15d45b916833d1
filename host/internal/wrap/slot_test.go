//go:build linux || darwin

package wrap

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sox-host/sox-host/host/internal/slot"
	"github.com/sox-host/sox-host/host/internal/store"
	"github.com/sox-host/sox-host/plugin/wire"
)

// versionServer says its version, and dies when it is told to. Its read-only tool may be repeated. The file
// named by its second argument counts the calls that kill.
var versionServer = register("version", func(args []string) {
	eachLine(os.Stdin, func(m message) {
		name := string(wire.Unquote(wire.Member(m.Params, "name")))
		switch {
		case m.Method == "tools/list":
			say(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"say","inputSchema":{"type":"object"}},{"name":"die","inputSchema":{"type":"object"}},{"name":"look","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}]}}`, m.ID)
		case m.Method == "tools/call" && (name == "die" || name == "look"):
			f, err := os.OpenFile(args[1], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			if err == nil {
				_, err = f.WriteString(name + "\n")
			}
			calls, _ := os.ReadFile(args[1])
			if err != nil || name == "die" || strings.Count(string(calls), "look") == 1 {
				fmt.Println("going down")
				os.Exit(3)
			}
			fallthrough
		case m.Method == "tools/call":
			say(`{"jsonrpc":"2.0","id":%s,"result":{"content":[],"version":%q}}`, m.ID, args[0])
		default:
			legacy(m, say)
		}
	})
})

// wrapLauncher is a slot.Launcher as the host has one.
type wrapLauncher struct{ t *testing.T }

func (l wrapLauncher) Launch(_ context.Context, launch slot.Launch) (slot.Backend, error) {
	cfg := realStart(l.t, *launch.Build.Manifest)
	cfg.Spec.Plugin, cfg.Spec.Version, cfg.Spec.Generation = "kit", launch.Build.Version.String(), launch.Generation
	return Launch(cfg), nil
}

type quietObserver struct{}

func (quietObserver) Changed(*slot.Slot) {}
func (quietObserver) Idle()              {}

// owner collects how calls end.
type owner struct{ ends chan end }

type end struct {
	version string // what the server said; "" for an error
	err     *wire.Error
}

func (o *owner) Finish(_ *slot.Request, a slot.Answer) {
	e := end{err: a.Err}
	if a.Env != nil {
		e.version = string(wire.Unquote(bytes.Clone(wire.Member(a.Env.Result(), "version"))))
	}
	o.ends <- e
}

func (o *owner) Progress(*slot.Request, *wire.Envelope) {}

// slotRig is a slot over manifests of versionServer.
type slotRig struct {
	t       *testing.T
	slot    *slot.Slot
	session *slot.Session
	owner   *owner
	plugins string
	calls   string
}

func newSlotRig(t *testing.T) *slotRig {
	t.Helper()
	root := t.TempDir()
	r := &slotRig{t: t, plugins: filepath.Join(root, "plugins"), calls: filepath.Join(root, "calls"), owner: &owner{ends: make(chan end, 4096)}}
	if err := os.Mkdir(r.plugins, 0o700); err != nil {
		t.Fatal(err)
	}
	home, err := store.OpenHome(filepath.Join(root, "home"))
	if err != nil {
		t.Fatal(err)
	}
	state, err := home.State(r.plugins)
	if err != nil {
		t.Fatal(err)
	}
	r.drop("1.0.0")
	r.slot = slot.New(slot.Config{
		Name: "kit", PluginsDir: r.plugins, Home: home, State: state,
		Settings: slot.Settings{StartTimeout: patience, GiveUp: patience},
		Launcher: wrapLauncher{t}, Observer: quietObserver{},
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		r.slot.Close(ctx)
	})
	r.session = &slot.Session{ID: 1, Revision: wire.RevisionLegacy, Init: json.RawMessage(initParams)}
	r.slot.Want(r.session)
	return r
}

// drop puts a manifest of a version into the plugins folder.
func (r *slotRig) drop(version string) {
	r.t.Helper()
	m := program(versionServer, version, r.calls)
	raw, err := json.Marshal(map[string]any{"command": m.Command, "args": m.Args, "env": m.Env})
	if err == nil {
		err = os.WriteFile(filepath.Join(r.plugins, "kit_v"+version+".json"), raw, 0o600)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *slotRig) call(tool string, class slot.Class) {
	conn := r.slot.Dispatch(&slot.Request{
		Owner: r.owner, Session: r.session, Method: []byte(`"tools/call"`), Class: class, Tool: tool,
		Params: fmt.Appendf(nil, `{"name":%q}`, tool),
	})
	if conn != nil {
		_ = conn.Flush()
	}
}

func TestSlot_upgrades_a_wrapped_server_under_load(t *testing.T) {
	r := newSlotRig(t)
	r.call("say", slot.Once)
	if e := await(t, "the first answer", r.owner.ends); e.version != "1.0.0" {
		t.Fatalf("%+v", e)
	}
	r.drop("1.1.0")
	upgraded := make(chan slot.Report, 1)
	go func() { upgraded <- r.slot.Upgrade(t.Context(), slot.UpgradeRequest{SettleMS: -1}, nil) }()
	sent, got := 0, map[string]int{}
	// One call in flight at any time, until the upgrade is over.
	for over := false; !over; {
		r.call("say", slot.Once)
		sent++
		e := await(t, "an answer", r.owner.ends)
		if e.err != nil {
			t.Fatalf("a call was lost: %v", e.err)
		}
		got[e.version]++
		select {
		case report := <-upgraded:
			if report.Result != slot.ResultUpgraded || report.Failed != 0 {
				t.Fatalf("%+v", report)
			}
			over = true
		default:
		}
	}
	r.call("say", slot.Once)
	if e := await(t, "the last answer", r.owner.ends); e.version != "1.1.0" {
		t.Errorf("%q %v", e.version, e.err)
	}
	if got["1.0.0"]+got["1.1.0"] != sent {
		t.Errorf("%d calls: %v", sent, got)
	}
}

func TestSlot_a_wrapped_server_that_dies_runs_nothing_twice(t *testing.T) {
	r := newSlotRig(t)
	r.call("die", slot.Once)
	e := await(t, "the end of the call", r.owner.ends)
	if e.err == nil || e.err.Code != wire.CodeOutcomeUnknown || !strings.Contains(e.err.Message, "exited with code 3") {
		t.Errorf("%q %v", e.version, e.err)
	}
	r.call("look", slot.Read)
	if e := await(t, "the end of the read", r.owner.ends); e.version != "1.0.0" {
		t.Errorf("the read was not repeated: %+v", e)
	}
	f, err := os.Open(r.calls)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ran, _ := io.ReadAll(f)
	if string(ran) != "die\nlook\nlook\n" {
		t.Errorf("ran %q", ran)
	}
}
