package slot

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sox-host/sox-host/host/internal/store"
	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

const name = "notes"

// env is a slot over a real store and fake plugins.
type env struct {
	*world
	t        *testing.T
	dir      string
	plugins  string
	home     *store.Home
	state    *store.State
	slot     *Slot
	opens    int // slots that were made
	config   Config
	nextID   uint64
	mu       sync.Mutex
	seen     []*result
	changes  int
	notified []string // what plugins sent on their own
}

// bubble runs fn in a synctest bubble with a fresh home and the given versions in the plugins folder.
func bubble(t *testing.T, versions []string, fn func(e *env)) {
	t.Helper()
	dir, err := os.MkdirTemp("", "slot")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	synctest.Test(t, func(t *testing.T) {
		e := &env{world: newWorld(), t: t, dir: dir, plugins: filepath.Join(dir, "plugins")}
		if err := os.Mkdir(e.plugins, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, v := range versions {
			e.drop(v, "")
		}
		if e.home, err = store.OpenHome(filepath.Join(dir, "home")); err != nil {
			t.Fatal(err)
		}
		if e.state, err = e.home.State(e.plugins); err != nil {
			t.Fatal(err)
		}
		e.config = Config{
			Name: name, PluginsDir: e.plugins, Home: e.home, State: e.state, Launcher: e.world, Observer: e,
			Jitter: func(d time.Duration) time.Duration { return d },
		}
		fn(e)
		if e.slot != nil {
			e.close()
		}
	})
}

// drop puts a build into the plugins folder; other salt, other bytes.
func (e *env) drop(version, salt string) {
	e.t.Helper()
	path := filepath.Join(e.plugins, name+"_v"+version)
	_ = os.Remove(path)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n# "+version+" "+salt+"\n"), 0o700); err != nil {
		e.t.Fatal(err)
	}
	past := time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC) // before a bubble's clock begins: it has settled
	if err := os.Chtimes(path, past, past); err != nil {
		e.t.Fatal(err)
	}
}

// open makes the slot.
func (e *env) open(settings Settings) {
	e.config.Settings = settings
	e.slot = New(e.config)
	e.opens++
}

// close ends the slot and checks what must hold at the end of every test: each request ended exactly once,
// no handler of a Once ran twice, nothing said "no" that ran, and no process is left.
func (e *env) close() {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	e.slot.Close(ctx)
	synctest.Wait()
	e.checkCounters(e.slot)
	e.slot = nil
	for _, p := range e.all() {
		if p.running() {
			e.t.Errorf("%s generation %d still runs", p.version, p.num)
		}
	}
	e.check()
}

// check judges every request that was ever dispatched.
func (e *env) check() {
	e.t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.seen {
		r.mu.Lock()
		n, answer, cancelled := r.finished, r.err, r.cancelled
		r.mu.Unlock()
		ran := e.runs(r.key)
		switch {
		case cancelled && n != 0:
			e.t.Errorf("%s: cancelled, and answered %d times", r.key, n)
		case !cancelled && n != 1:
			e.t.Errorf("%s: answered %d times", r.key, n)
		case r.req.Class == Once && ran > 1:
			e.t.Errorf("%s: its handler ran %d times", r.key, ran)
		case ran > 2:
			e.t.Errorf("%s: its handler ran %d times", r.key, ran)
		case answer != nil && executed(answer) == "no" && ran > 0:
			e.t.Errorf("%s: said not executed, ran %d times: %v", r.key, ran, answer)
		}
	}
}

// checkCounters holds what a slot has counted against what its clients were told.
func (e *env) checkCounters(s *Slot) {
	e.t.Helper()
	if e.opens > 1 {
		return // who was told by which slot is not known
	}
	told, withdrawn := map[wire.Code]int{}, 0
	e.mu.Lock()
	for _, r := range e.seen {
		r.mu.Lock()
		if r.err != nil {
			told[r.err.Code]++
		}
		if r.cancelled {
			withdrawn++
		}
		r.mu.Unlock()
	}
	e.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &s.counters
	for code, counted := range map[wire.Code]uint64{
		wire.CodeOutcomeUnknown: c.unknown, wire.CodeUnavailable: c.unavailable + c.overflow,
		wire.CodeBusy: c.busy, wire.CodeDeadlineExceeded: c.overdue,
	} {
		if int(counted) > told[code]+withdrawn {
			e.t.Errorf("%d ends with %d were counted, %d were told", counted, code, told[code])
		}
	}
}

func executed(err *wire.Error) string {
	var data wire.ErrorData
	_ = json.Unmarshal(err.Data, &data)
	return string(data.Executed)
}

// Changed implements Observer.
func (e *env) Changed(*Slot) {
	e.mu.Lock()
	e.changes++
	e.mu.Unlock()
}

// Idle implements Observer.
func (e *env) Idle() {}

// PluginRequest implements Peer.
func (e *env) PluginRequest(_ Origin, env *wire.Envelope, reply Replier) {
	reply.Answer([]byte(fmt.Sprintf(`{"asked":%s}`, env.RawMethod())), nil)
}

// PluginNotification implements Peer: as the gateway does, lists are fetched again.
func (e *env) PluginNotification(from Origin, env *wire.Envelope) {
	e.mu.Lock()
	e.notified = append(e.notified, string(env.Method()))
	e.mu.Unlock()
	if string(env.Method()) == "notifications/tools/list_changed" {
		e.slot.Relist(from)
	}
}

// relist is what the newest process causes by saying that its lists have changed.
func (e *env) relist(s *Session) {
	if all := e.all(); len(all) > 0 {
		e.slot.Relist(Origin{Session: s, Generation: all[len(all)-1].num})
	}
}

// session returns a new legacy MCP session.
func (e *env) session() *Session {
	e.nextID++
	return &Session{
		ID: e.nextID, Revision: "2025-11-25", Peer: e,
		Init: json.RawMessage(`{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`),
	}
}

// plain returns a new session of plain JSON-RPC.
func (e *env) plain() *Session {
	e.nextID++
	return &Session{ID: e.nextID, Peer: e}
}

// result is one request and its end. It is the Owner.
type result struct {
	req  Request
	key  string
	done chan struct{} // closed at the first end

	mu        sync.Mutex
	finished  int
	cancelled bool
	err       *wire.Error
	raw       json.RawMessage
	version   string
	progress  int
}

// Finish implements Owner.
func (r *result) Finish(_ *Request, a Answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.finished++
	r.version = a.Version
	switch {
	case a.Err != nil:
		r.err = a.Err
	case a.Env.Error() != nil:
		r.err = rpc.ParseError(a.Env.Error())
	default:
		r.raw = append(json.RawMessage(nil), a.Env.Result()...)
	}
	if r.finished == 1 {
		close(r.done)
	}
}

// Progress implements Owner.
func (r *result) Progress(*Request, *wire.Envelope) {
	r.mu.Lock()
	r.progress++
	r.mu.Unlock()
}

func (r *result) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// code waits for the end and returns the error's code, 0 for an answer.
func (r *result) code() wire.Code {
	<-r.done
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		return 0
	}
	return r.err.Code
}

// by waits for the end and returns the version that answered, or the error as text.
func (r *result) by() string {
	<-r.done
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return fmt.Sprintf("%d %s", r.err.Code, executed(r.err))
	}
	return string(wire.Unquote(wire.Member(r.raw, "version")))
}

// request makes a request without sending it.
func (e *env) request(s *Session, class Class, how string) *result {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := &result{key: fmt.Sprintf("k%d", len(e.seen)), done: make(chan struct{})}
	method, tool := `"tools/call"`, map[Class]string{Once: "do", Idempotent: "again"}[class]
	switch {
	case s.Revision == "":
		method = `"plain.do"`
	case class == Read:
		method = `"resources/read"`
	}
	r.req = Request{
		Owner: r, Session: s, Method: []byte(method), Class: class, Tool: tool,
		Params: fmt.Appendf(nil, `{"name":%q,"key":%q,"how":%q}`, tool, r.key, how),
	}
	e.seen = append(e.seen, r)
	return r
}

// send dispatches a request as the gateway does.
func (e *env) send(r *result) *result {
	if c := e.slot.Dispatch(&r.req); c != nil {
		_ = c.Flush()
	}
	return r
}

// call sends a request; how says what the fake does with it, "" = answers.
func (e *env) call(s *Session, class Class, how string) *result {
	return e.send(e.request(s, class, how))
}

func (e *env) cancel(r *result) bool {
	ok := e.slot.Cancel(&r.req, []byte(`"no longer wanted"`))
	if ok {
		r.mu.Lock()
		r.cancelled = true
		r.mu.Unlock()
	}
	return ok
}

// up starts the plugin by a first call and returns its process.
func (e *env) up(s *Session) *proc {
	e.t.Helper()
	if r := e.call(s, Read, ""); r.code() != 0 {
		e.t.Fatalf("not started: %v", r.err)
	}
	synctest.Wait()
	return e.last()
}

// upgrade runs an operation to its end.
func (e *env) upgrade(req UpgradeRequest) Report {
	return e.slot.Upgrade(context.Background(), req, nil)
}

// start runs an operation in the background.
func (e *env) start(req UpgradeRequest) <-chan Report {
	out := make(chan Report, 1)
	s := e.slot
	go func() { out <- s.Upgrade(context.Background(), req, nil) }()
	return out
}

// load reads the state from disk.
func (e *env) load() store.PluginState {
	e.t.Helper()
	s, err := e.state.Load(name)
	if err != nil {
		e.t.Fatal(err)
	}
	return s
}

// pass lets virtual time pass, and everything happen that is due then.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// want fails the test unless got is want.
func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}
