package slot

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sox-host/sox-host/host/internal/process"
	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

// script says how the fake plugin of one version behaves. The zero value is a good plugin that acks.
type script struct {
	says      string   // version in its ready frame; "" = the right one
	prints    string   // its last output, in place of one line that says nothing
	tools     []string // raw entries; nil = defaultTools
	resources []string
	endless   bool // each page of its resources has one of 8 KiB, and there is always another page
	noMCP     bool
	mcp       []string // revisions served; nil = both eras
	methods   []string
	noAck     bool
	exclusive bool
	snapshot  bool

	launchError  error
	silent       bool   // never sends its ready frame
	exitAtStart  bool   // ends before its ready frame
	exitAtReady  bool   // ends right after it
	exitOnList   bool   // ends in place of the list
	retires      string // "ready" or a method: where the first process of the version ends by itself, as an idle one does
	neverStays   bool   // and every other process too
	exitAfter    bool   // ends right after it answered the list
	sick         bool   // health answers an error
	listError    bool
	lists        map[string]lister // override the lists above, by method
	refuseOpen   bool
	refuses      uint64 // sessions up to this number
	launchHold   chan struct{}
	refuseState  bool // does not take a snapshot
	ignoresStop  bool // neither the end of its connection nor a signal but SIGKILL ends it
	unkillable   bool // and not that either
	noHealth     bool // neither declares nor answers health
	serial       bool
	deafHealth   bool // does not answer health
	holdOpen     chan struct{}
	holdList     chan struct{}
	holdWish     chan struct{}
	bootDelay    time.Duration
	exitCode     int
	exitOnCommit func() // called when health was answered: the last thing before the commit

	refuseSnapshot bool // does not give its state
}

// more are the capabilities besides the usual ones.
func (s script) more() string {
	if s.lists["prompts/list"] != nil {
		return `,"prompts":{}`
	}
	return ""
}

// lister answers a page of a list: with its JSON, an error's text, or never.
type lister func(p *proc, cursor string) (result, failure string)

var (
	hangs lister = func(p *proc, _ string) (string, string) { <-p.exited; return "", "ended" }
	fails lister = func(*proc, string) (string, string) { return "", "out of order" }
)

var defaultTools = []string{
	`{"name":"do","inputSchema":{"type":"object"}}`,
	`{"name":"again","inputSchema":{"type":"object"},"annotations":{"idempotentHint":true}}`,
}

// world is everything outside of the slot: scripts, running fakes and what they have done.
type world struct {
	mu       sync.Mutex
	scripts  map[string]script // by version
	procs    []*proc
	started  []time.Time
	ran      map[string]int // how often each call's handler ran, by its key
	order    []string       // the keys in the order they ran
	versions map[string]string
}

func newWorld() *world {
	return &world{scripts: make(map[string]script), ran: make(map[string]int), versions: make(map[string]string)}
}

// set changes the script of the processes of a version that are started from now on.
func (w *world) set(version string, fn func(*script)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.scripts[version]
	fn(&s)
	w.scripts[version] = s
}

func (w *world) runs(key string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ran[key]
}

// all returns the fakes in the order of their start.
func (w *world) all() []*proc {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.procs)
}

func (w *world) last() *proc {
	all := w.all()
	return all[len(all)-1]
}

// launches returns how often a process was asked for.
func (w *world) launches() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.started)
}

// Launch implements Launcher.
func (w *world) Launch(ctx context.Context, l Launch) (Backend, error) {
	w.mu.Lock()
	s := w.scripts[l.Build.Version.String()]
	w.started = append(w.started, time.Now())
	w.mu.Unlock()
	if s.launchHold != nil {
		<-s.launchHold
	}
	if s.launchError != nil {
		return nil, s.launchError
	}
	host, plugin := net.Pipe()
	p := &proc{
		world: w, script: s, plugin: l.Build.Plugin, version: l.Build.Version.String(), num: l.Generation,
		host: host, own: &gate{Conn: plugin, changed: make(chan struct{})}, exited: make(chan struct{}), open: make(map[string]*held), began: time.Now(),
	}
	p.conn = rpc.NewConn(p.own, rpc.Options{Serve: p.serve})
	w.mu.Lock()
	w.procs = append(w.procs, p)
	p.pid = len(w.procs)
	p.first = !slices.ContainsFunc(w.procs[:p.pid-1], func(o *proc) bool { return o.version == p.version })
	w.mu.Unlock()
	go p.main()
	return p, nil
}

// proc is one fake plugin process.
type proc struct {
	world   *world
	script  script
	plugin  string
	version string
	num     uint64
	first   bool // of its version
	pid     int
	host    net.Conn
	own     *gate
	conn    *rpc.Conn
	began   time.Time
	exited  chan struct{}

	mu       sync.Mutex
	open     map[string]*held // calls that wait for the test, by key
	log      []string         // "session method" in the order read
	lists    int
	wishes   []string // subscriptions and log levels, as they came
	state    json.RawMessage
	stopping bool
	frozen   bool
	exit     process.Exit
	once     sync.Once
}

type held struct{ id []byte }

// retiresAt reports whether the process ends by itself at that point.
func (p *proc) retiresAt(point string) bool {
	return p.script.retires == point && (p.first || p.script.neverStays)
}

func (p *proc) main() {
	ended := make(chan struct{})
	go func() { _ = p.conn.Run(); close(ended) }()
	s := p.now()
	if s.bootDelay > 0 {
		select {
		case <-time.After(s.bootDelay):
		case <-p.exited:
			return
		}
	}
	switch {
	case s.exitAtStart:
		p.die(cmpOr(s.exitCode, 1), "")
	case !s.silent:
		ready := wire.Ready{
			Protocol: wire.ProtocolRange{Min: 1, Max: 1}, Name: p.plugin, Version: p.version, Methods: s.methods,
			MCP:          []string{"2025-11-25", wire.RevisionModern},
			Capabilities: wire.Capabilities{Ack: !s.noAck, Cancel: true, Health: !s.noHealth, Exclusive: s.exclusive, Snapshot: s.snapshot, Serial: s.serial},
		}
		if s.mcp != nil {
			ready.MCP = s.mcp
		}
		if s.noMCP {
			ready.MCP = nil
		}
		if s.says != "" {
			ready.Version = s.says
		}
		params, _ := json.Marshal(ready)
		_ = p.conn.Notify(0, wire.MethodReady, params)
		_ = p.conn.Drained()
		if p.retiresAt("ready") {
			p.retire()
		}
		if s.exitAtReady {
			p.die(s.exitCode, "")
		}
	}
	<-ended
	p.mu.Lock()
	stays := p.script.ignoresStop || p.frozen
	p.mu.Unlock()
	if !stays {
		p.die(0, "")
	}
}

// now returns the present script.
func (p *proc) now() script {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.script
}

// set changes the script of this process.
func (p *proc) set(fn func(*script)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fn(&p.script)
}

func cmpOr(a, b int) int {
	if a != 0 {
		return a
	}
	return b
}

// die ends the process.
func (p *proc) die(code int, signal string) {
	p.once.Do(func() {
		_ = p.own.Close()
		p.mu.Lock()
		p.exit = process.Exit{Code: code, Signal: signal, At: time.Now(), Ran: time.Since(p.began)}
		p.mu.Unlock()
		close(p.exited)
	})
}

func (p *proc) kill()         { p.die(0, "SIGKILL") }
func (p *proc) running() bool { return p.ended() == nil }

// ended returns the exit, or nil while the process runs.
func (p *proc) ended() *process.Exit {
	select {
	case <-p.exited:
		p.mu.Lock()
		defer p.mu.Unlock()
		e := p.exit
		return &e
	default:
		return nil
	}
}

// freeze stops the process from reading and from acting on signals. limit is how many bytes it still reads.
func (p *proc) freeze(limit int) {
	p.mu.Lock()
	p.frozen = true
	p.mu.Unlock()
	p.own.limit(limit)
}

func (p *proc) thaw() {
	p.mu.Lock()
	p.frozen = false
	p.mu.Unlock()
	p.own.limit(-1)
}

func (p *proc) Conn() net.Conn          { return p.host }
func (p *proc) Pid() int                { return p.pid }
func (p *proc) Exited() <-chan struct{} { return p.exited }
func (p *proc) Tail() []string {
	return strings.Split(cmp.Or(p.now().prints, "the last line of "+p.version), "\n")
}
func (p *proc) Exit() process.Exit {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exit
}

// Kill implements Backend. What hangs in the kernel does not notice.
func (p *proc) Kill() {
	if !p.now().unkillable {
		p.kill()
	}
}

// Stop climbs the ladder as a real process makes it.
func (p *proc) Stop(l process.Ladder) {
	_ = p.host.Close()
	if process.Within(p.exited, l.Close) {
		return
	}
	p.mu.Lock()
	deaf := p.frozen || p.script.ignoresStop
	p.mu.Unlock()
	if !deaf {
		p.die(0, "SIGTERM")
		return
	}
	if !process.Within(p.exited, l.Term) {
		p.Kill()
		process.Within(p.exited, l.Kill)
	}
}

// answerAll answers every held call.
func (p *proc) answerAll() {
	p.mu.Lock()
	open := p.open
	p.open = make(map[string]*held)
	p.mu.Unlock()
	for key, h := range open {
		_ = p.conn.Reply(h.id, p.result(key))
	}
	p.leave()
}

// leave ends a process that was told to, once nothing is open.
func (p *proc) leave() {
	p.mu.Lock()
	done := p.stopping && len(p.open) == 0 && !p.script.ignoresStop
	p.mu.Unlock()
	if done {
		_ = p.conn.Notify(0, wire.MethodBye, nil)
		_ = p.conn.Drained()
		p.die(0, "")
	}
}

func (p *proc) heldKeys() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for k := range p.open {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func (p *proc) result(key string) []byte {
	return fmt.Appendf(nil, `{"key":%q,"version":%q,"generation":%d}`, key, p.version, p.num)
}

// serve runs on the fake's reading goroutine: what blocks here is a plugin that does not read.
func (p *proc) serve(c *rpc.Conn, env *wire.Envelope) {
	method := string(env.Method())
	p.mu.Lock()
	p.log = append(p.log, fmt.Sprintf("%d %s", env.Session(), method))
	s := p.script
	p.mu.Unlock()
	if s.exitAtReady || p.retiresAt("ready") {
		return // it is about to end
	}
	if list := s.lists[method]; list != nil {
		id, cursor := append([]byte(nil), env.ID()...), string(wire.Unquote(wire.Member(env.Params(), "cursor")))
		go func() { // ends with the answer, or with the process
			if result, failure := list(p, cursor); failure == "" {
				_ = c.Reply(id, []byte(result))
			} else {
				_ = c.ReplyError(id, wire.Errorf(wire.CodeInternal, "%s", failure))
			}
		}()
		return
	}
	reply := func(result string) { _ = c.Reply(env.ID(), []byte(result)) }
	refuse := func(text string) { _ = c.ReplyError(env.ID(), wire.Errorf(wire.CodeInternal, "%s", text)) }
	switch method {
	case wire.MethodShutdown:
		p.mu.Lock()
		p.stopping = true
		p.mu.Unlock()
		go p.leave()
	case wire.MethodSessionOpen:
		wait(p, s.holdOpen)
		if id, _ := wire.ParseUint(wire.Member(env.Params(), "session")); s.refuseOpen || id <= s.refuses {
			refuse("no room for a session")
			return
		}
		reply("{}")
	case wire.MethodHealth:
		if s.deafHealth {
			return
		}
		if p.retiresAt(method) {
			go p.retire()
			return
		}
		if s.sick {
			refuse("not well")
			return
		}
		reply(`{"ok":true}`)
		if s.exitOnCommit != nil {
			s.exitOnCommit()
		}
	case wire.MethodSnapshot:
		if s.refuseSnapshot {
			refuse("busy")
			return
		}
		reply(fmt.Sprintf(`{"state":"of %s"}`, p.version))
	case wire.MethodRestore:
		if s.refuseState {
			refuse("cannot read that")
			return
		}
		p.mu.Lock()
		p.state = append(json.RawMessage(nil), wire.Member(env.Params(), "state")...)
		p.mu.Unlock()
		reply("{}")
	case "initialize":
		reply(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"resources":{},"logging":{}` + s.more() + `},"serverInfo":{"name":"fake","version":"1"}}`)
	case "server/discover":
		reply(`{"capabilities":{"tools":{}}}`)
	case "tools/list":
		p.mu.Lock()
		p.lists++
		tools := p.script.tools
		p.mu.Unlock()
		wait(p, s.holdList)
		if p.retiresAt(method) {
			go p.retire()
			return
		}
		if s.exitOnList {
			p.die(cmpOr(s.exitCode, 3), "")
			return
		}
		if s.listError {
			refuse("lists are out")
			return
		}
		if tools == nil {
			tools = defaultTools
		}
		reply(`{"tools":[` + strings.Join(tools, ",") + `]}`)
		if s.exitAfter {
			_ = c.Drained()
			p.die(cmpOr(s.exitCode, 3), "")
		}
	case "resources/list":
		if s.endless {
			at := len(wire.Member(env.Params(), "cursor"))
			reply(fmt.Sprintf(`{"resources":[{"uri":"a:%d","text":%q}],"nextCursor":%q}`, at, strings.Repeat("x", 8<<10), strings.Repeat("c", at+1)))
			return
		}
		reply(`{"resources":[` + strings.Join(s.resources, ",") + `]}`)
	case "resources/templates/list":
		reply(`{"resourceTemplates":[]}`)
	case "resources/subscribe", "resources/unsubscribe", "logging/setLevel":
		p.mu.Lock()
		p.wishes = append(p.wishes, method+" "+string(env.Params()))
		p.mu.Unlock()
		wait(p, s.holdWish)
		reply("{}")
	case "tools/call", "resources/read", "plain.do":
		p.call(c, env)
	case "notifications/cancelled", wire.MethodCancel:
		id := wire.Member(env.Params(), "requestId")
		if id == nil {
			id = wire.Member(env.Params(), "id")
		}
		p.mu.Lock()
		for key, h := range p.open {
			if string(h.id) == string(id) {
				delete(p.open, key)
				p.log = append(p.log, "cancelled "+key)
			}
		}
		p.mu.Unlock()
	default:
		if env.Kind == wire.Request {
			refuse("unknown " + method)
		}
	}
}

// wait blocks until c is closed or the process ends; nil does not block.
func wait(p *proc, c chan struct{}) {
	if c == nil {
		return
	}
	select {
	case <-c:
	case <-p.exited:
	}
}

// call runs one call. params.how says what happens to it.
func (p *proc) call(c *rpc.Conn, env *wire.Envelope) {
	key := string(wire.Unquote(wire.Member(env.Params(), "key")))
	how := string(wire.Unquote(wire.Member(env.Params(), "how")))
	if how == "crash-before-ack" || how == "crash-before-ack-once" && p.first {
		p.kill()
		return
	}
	if how == "mute-once" && p.first {
		return
	}
	if how == "refuse-once" && p.first { // as a plugin does that is about to end
		_ = c.ReplyError(env.ID(), wire.NewError(wire.CodeShuttingDown, "stopping", wire.ErrorData{}))
		return
	}
	if env.WantsAck() {
		if c.Send(func(dst []byte) []byte { return wire.AppendAck(dst, env.ID()) }) != nil || c.Drained() != nil {
			return // a handler starts only behind its ack
		}
	}
	if !p.running() {
		return // a dead process runs nothing of what it had read
	}
	p.world.mu.Lock()
	p.world.ran[key]++
	p.world.order = append(p.world.order, key)
	n := p.world.ran[key]
	p.world.versions[key] = p.version
	p.world.mu.Unlock()
	if how == "crash" || how == "crash-once" && n == 1 {
		p.kill()
		return
	}
	if how == "answer-and-exit" {
		_ = c.Reply(env.ID(), p.result(key))
		_ = c.Drained()
		p.die(0, "")
		return
	}
	if how == "exit" {
		p.die(0, "")
		return
	}
	if how == "hold" || how == "hold-once" && n == 1 {
		p.mu.Lock()
		p.open[key] = &held{id: append([]byte(nil), env.ID()...)}
		p.mu.Unlock()
		return
	}
	_ = c.Reply(env.ID(), p.result(key))
}
