package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sox-host/sox-host/host/internal/process"
	"github.com/sox-host/sox-host/host/internal/slot"
	"github.com/sox-host/sox-host/host/internal/store"
	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

// fakePlugin is a plugin that lives in a goroutine and speaks protocol 1 over a net.Pipe. What it lists comes
// from its version's entry; what its tools do follows from their names:
//
//	echo       answers with the params as they came
//	slow       answers only when cancelled, and then late
//	progress   sends two progress notifications, then answers
//	slowly     sends a progress notification, waits 200 ms, answers, and sends another one too late
//	ask        asks the client for elicitation, answers with what came back
//	pretty     answers with line ends between its tokens
//	sample     asks the client for sampling with arguments.token, answers with the progress and the answer
//	both       asks the client for elicitation and sampling at once, answers with what came back
//	impatient  asks the client, and answers after 1 s without waiting for it
//	leave      asks the client, and withdraws that after 1 s
//	input      asks for input by its result, twice, then answers with the params
//	endless    asks for input by its result, always
//	later      asks to be called again, once
//	error      answers with arguments.error
//	log        logs at three levels, then answers
//	touch      says that the resource arguments.uri has changed, then answers
//	link       answers with a link to arguments.uri
//	grow       lists one more tool, "grown_N", in the place of the one before, says so, and answers
//
// Resources that it does not list are not found, unless their uri begins with its name.
//
//	big        answers with 2,000 bytes
//	die        ends without an answer
type fakePlugin struct {
	name    string
	version string
	lists   map[string]string // method → result; "hang" = no answer
	methods []string
	caps    string        // of initialize and server/discover
	mcp     []string      // revisions served; nil = both eras
	boot    time.Duration // before the ready frame
	grown   int           // calls of grow
	fails   string        // why it cannot be started; "" = it can
	refuses string        // why it opens no MCP session; "" = it does

	conn   *rpc.Conn
	mu     sync.Mutex
	listen []byte   // id of the open subscriptions/listen
	seen   []string // methods received, for assertions
	told   []string // params of the progress that came from the client
	exited chan struct{}
}

func (p *fakePlugin) run() {
	if p.mcp == nil {
		p.mcp = []string{"2025-11-25", "2026-07-28"}
	}
	go func() {
		time.Sleep(max(p.boot, time.Millisecond)) // virtual time: the bubble's clock. Never before the client's line is handled
		ready, _ := json.Marshal(wire.Ready{
			Protocol: wire.ProtocolRange{Min: 1, Max: 1}, Name: p.name, Version: p.version,
			MCP: p.mcp, Methods: p.methods,
			Capabilities: wire.Capabilities{Ack: true, Cancel: true},
		})
		_ = p.conn.Notify(0, wire.MethodReady, ready)
	}()
	_ = p.conn.Run()
	close(p.exited)
}

func (p *fakePlugin) serve(c *rpc.Conn, env *wire.Envelope) {
	method := string(env.Method())
	p.mu.Lock()
	what := method
	switch method {
	case "resources/subscribe", "resources/unsubscribe":
		what += "(" + string(wire.Unquote(env.URI())) + ")"
	case "subscriptions/listen":
		what += string(wire.Member(env.Params(), "notifications"))
	case "logging/setLevel":
		what += "(" + string(wire.Unquote(wire.Member(env.Params(), "level"))) + ")"
	}
	p.seen = append(p.seen, what)
	p.mu.Unlock()
	id := append([]byte(nil), env.ID()...)
	reply := func(result string) { _ = c.Reply(id, []byte(result)) }
	if env.WantsAck() {
		_ = c.Send(func(dst []byte) []byte { return wire.AppendAck(dst, id) })
	}
	if p.refuses != "" && (method == "initialize" || method == "server/discover") {
		_ = c.ReplyError(id, wire.NewError(wire.CodeUnavailable, p.refuses, wire.ErrorData{}))
		return
	}
	switch method {
	case wire.MethodShutdown:
		_ = c.Notify(0, wire.MethodBye, nil)
		go func() { _ = c.Close() }()
	case "initialize":
		reply(`{"protocolVersion":"2025-11-25","capabilities":` + p.caps + `,"serverInfo":{"name":"` + p.name + `","version":"` + p.version + `"},"instructions":"Use ` + p.name + ` well."}`)
	case "server/discover":
		reply(`{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":` + p.caps + `,"instructions":"Use ` + p.name + ` well."}`)
	case "tools/call":
		p.tool(c, env, id)
	case "subscriptions/listen":
		p.mu.Lock()
		p.listen = id
		p.mu.Unlock()
	case "notifications/cancelled":
		p.mu.Lock()
		listen := p.listen
		p.mu.Unlock()
		if string(env.RequestID()) == string(listen) {
			_ = c.Reply(listen, []byte(`{"resultType":"complete"}`))
		}
	case "notifications/progress":
		p.mu.Lock()
		p.told = append(p.told, string(env.Params()))
		p.mu.Unlock()
	case "resources/read":
		uri := string(wire.Unquote(env.URI()))
		if strings.Contains(p.lists["resources/list"], `"`+uri+`"`) || strings.HasPrefix(uri, p.name) {
			reply(`{"contents":[{"uri":"` + uri + `","text":"of ` + p.name + `"}]}`)
			return
		}
		_ = c.ReplyError(id, wire.Errorf(wire.CodeResourceNotFound, "%s does not know it", p.name))
	default:
		switch {
		case p.lists[method] == "hang":
		case p.lists[method] != "":
			reply(p.lists[method])
		case env.Kind == wire.Request && (method == wire.MethodSessionOpen || method == wire.MethodHealth || method == "logging/setLevel"):
			reply(`{}`)
		case env.Kind == wire.Request:
			reply(`{"method":"` + method + `","params":` + orNull(env.Params()) + `}`)
		}
	}
}

func orNull(raw []byte) string {
	if raw == nil {
		return "null"
	}
	return string(raw)
}

func (p *fakePlugin) tool(c *rpc.Conn, env *wire.Envelope, id []byte) {
	params := append([]byte(nil), env.Params()...)
	token := append([]byte(nil), env.MetaProgressToken()...)
	session := env.Session()
	progress := func(n int) {
		if len(token) == 0 {
			return
		}
		_ = c.Notify(session, "notifications/progress", fmt.Appendf(nil, `{"progressToken":%s,"progress":%d}`, token, n))
	}
	switch name := string(wire.Unquote(env.Name())); name {
	case "slow":
	case "die":
		go func() { _ = c.Close() }()
	case "pretty":
		_ = c.Reply(id, []byte("{\n  \"content\": [ ],\r\n  \"note\": \"a\\nb  c\"\n}"))
	case "sample":
		ask := append(append([]byte(`{"_meta":{"progressToken":`), wire.Member(env.Arguments(), "token")...), `},"maxTokens":5}`...)
		go func() {
			result, err := c.Call(context.Background(), rpc.Request{Session: session, Method: "sampling/createMessage", Params: ask})
			if err != nil {
				result = wire.AppendQuote(nil, err.Error())
			}
			p.mu.Lock()
			told := strings.Join(p.told, ",")
			p.mu.Unlock()
			_ = c.Reply(id, append(append([]byte(`{"content":[],"progress":[`+told+`],"answer":`), result...), '}'))
		}()
	case "both":
		go func() {
			got := make([]string, 2)
			var asking sync.WaitGroup
			for i, method := range []string{"elicitation/create", "sampling/createMessage"} {
				asking.Go(func() {
					result, err := c.Call(context.Background(), rpc.Request{Session: session, Method: method, Params: []byte(`{"message":"M","maxTokens":5}`)})
					if got[i] = string(result); err != nil {
						got[i] = `"` + err.Error() + `"`
					}
				})
				time.Sleep(time.Millisecond) // virtual time, for an order
			}
			asking.Wait()
			_ = c.Reply(id, []byte(`{"content":[],"got":[`+strings.Join(got, ",")+`]}`))
		}()
	case "impatient":
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second) // virtual time
			defer cancel()
			_, _ = c.Call(ctx, rpc.Request{Session: session, Method: "elicitation/create", Params: []byte(`{"message":"Quick?"}`)})
			_ = c.Reply(id, []byte(`{"content":[{"type":"text","text":"never mind"}]}`))
		}()
	case "leave":
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second) // virtual time
			defer cancel()
			_, _ = c.Call(ctx, rpc.Request{Session: session, Method: "elicitation/create", Params: []byte(`{"message":"Quick?"}`)})
			_ = c.Notify(session, "notifications/cancelled", []byte(`{"requestId":1}`))
			_ = c.Reply(id, []byte(`{"content":[]}`))
		}()
	case "error":
		e := append([]byte(nil), wire.Member(env.Arguments(), "error")...)
		_ = c.Send(func(dst []byte) []byte { return wire.AppendRawError(dst, id, e) })
		_ = c.Flush()
	case "log":
		for _, level := range []string{"debug", "info", "error"} {
			_ = c.Notify(session, "notifications/message", []byte(`{"level":"`+level+`","data":1}`))
		}
		_ = c.Notify(session, "notifications/message", []byte(`{"logger":"db","data":"x","level":"alert"}`))
		_ = c.Notify(session, "notifications/message", []byte(`{}`))
		_ = c.Reply(id, []byte(`{"content":[]}`))
	case "touch":
		_ = c.Notify(session, "notifications/resources/updated", append(append([]byte(`{"uri":`), wire.Member(env.Arguments(), "uri")...), '}'))
		_ = c.Reply(id, []byte(`{"content":[]}`))
	case "grow":
		p.grown++ // by the connection's reader, which reads the lists too
		p.lists["tools/list"] = `{"tools":[` + tool("grow") + `,` + tool(fmt.Sprintf("grown_%d", p.grown)) + `]}`
		_ = c.Notify(session, "notifications/tools/list_changed", nil)
		_ = c.Reply(id, []byte(`{"content":[]}`))
	case "link":
		_ = c.Reply(id, append(append([]byte(`{"content":[{"type":"resource_link","name":"l","uri":`), wire.Member(env.Arguments(), "uri")...), `}]}`...))
	case "endless":
		_ = c.Reply(id, []byte(`{"resultType":"input_required","inputRequests":{"more":{"method":"elicitation/create","params":{"message":"More?"}}}}`))
	case "later":
		if wire.Member(params, "requestState") == nil {
			_ = c.Reply(id, []byte(`{"resultType":"input_required","inputRequests":{},"requestState":"later"}`))
			return
		}
		_ = c.Reply(id, append(append([]byte(`{"resultType":"complete","content":[],"got":`), params...), '}'))
	case "input":
		switch rounds := string(wire.Unquote(wire.Member(params, "requestState"))); {
		case wire.Member(params, "inputResponses") == nil:
			_ = c.Reply(id, []byte(`{"resultType":"input_required","inputRequests":{"who":{"method":"elicitation/create","params":{"mode":"form","message":"Name?"}},"dirs":{"method":"roots/list"}},"requestState":"one"}`))
		case rounds == "one":
			_ = c.Reply(id, []byte(`{"resultType":"input_required","inputRequests":{"page":{"method":"elicitation/create","params":{"mode":"url","message":"Go.","url":"https://x.test"}}},"requestState":"two"}`))
		default:
			_ = c.Reply(id, append(append([]byte(`{"resultType":"complete","content":[],"ttlMs":5,"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"x"},"k":1},"got":`), params...), '}'))
		}
	case "big":
		_ = c.Reply(id, []byte(`{"content":[{"type":"text","text":"`+strings.Repeat("x", 2000)+`"}]}`))
	case "progress":
		progress(1)
		progress(2)
		_ = c.Reply(id, []byte(`{"content":[]}`))
	case "slowly":
		go func() {
			progress(1)
			time.Sleep(200 * time.Millisecond) // virtual time
			_ = c.Reply(id, []byte(`{"content":[]}`))
			progress(2)
		}()
	case "ask", "asklate":
		go func() {
			if name == "asklate" {
				time.Sleep(2 * time.Second) // virtual time
			}
			result, err := c.Call(context.Background(), rpc.Request{Session: session, Method: "elicitation/create", Params: []byte(`{"message":"Name?"}`)})
			if err != nil {
				_ = c.Reply(id, append(append([]byte(`{"isError":true,"content":[{"type":"text","text":`), wire.AppendQuote(nil, err.Error())...), `}]}`...))
				return
			}
			_ = c.Reply(id, append(append([]byte(`{"answer":`), result...), '}'))
		}()
	default:
		_ = c.Reply(id, append(append([]byte(`{"params":`), params...), '}'))
	}
}

// fakeBackend implements slot.Backend.
type fakeBackend struct {
	conn   net.Conn
	plugin *fakePlugin
}

func (b *fakeBackend) Conn() net.Conn          { return b.conn }
func (b *fakeBackend) Pid() int                { return 4711 }
func (b *fakeBackend) Exited() <-chan struct{} { return b.plugin.exited }
func (b *fakeBackend) Exit() process.Exit      { return process.Exit{Code: 3, At: time.Now()} }
func (b *fakeBackend) Tail() []string          { return []string{"last words"} }
func (b *fakeBackend) Kill()                   { _ = b.plugin.conn.Close(); <-b.plugin.exited }
func (b *fakeBackend) Stop(process.Ladder)     { _ = b.plugin.conn.Close(); <-b.plugin.exited }

// fakeLauncher starts fake plugins by name and version.
type fakeLauncher struct {
	mu      sync.Mutex
	plugins map[string]func() *fakePlugin // "name version"
	started []*fakePlugin
}

func (l *fakeLauncher) Launch(_ context.Context, launch slot.Launch) (slot.Backend, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := launch.Build.Plugin + " " + launch.Build.Version.String()
	build := l.plugins[key]
	if build == nil {
		return nil, fmt.Errorf("no fake plugin %q", key)
	}
	p := build()
	if p.fails != "" {
		return nil, errors.New(p.fails)
	}
	p.name, p.version = launch.Build.Plugin, launch.Build.Version.String()
	p.exited = make(chan struct{})
	l.started = append(l.started, p)
	ours, theirs := net.Pipe()
	p.conn = rpc.NewConn(theirs, rpc.Options{Serve: p.serve})
	go p.run()
	return &fakeBackend{conn: ours, plugin: p}, nil
}

// world is a gateway with slots over fake plugins, and one client.
type world struct {
	t        *testing.T
	cfg      Config
	names    []string
	gw       *Gateway
	session  *Session
	launcher *fakeLauncher
	slots    []*slot.Slot
	out      *lineBuffer
	dir      string
	home     *store.Home
	state    *store.State
}

// lineBuffer collects what the client is sent. It is the client's end of stdout.
type lineBuffer struct {
	mu    sync.Mutex
	data  []byte
	wrote chan struct{} // nil, or told of each write; capacity 1
}

func (b *lineBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.data = append(b.data, p...)
	select {
	case b.wrote <- struct{}{}:
	default:
	}
	return len(p), nil
}

// await waits for a line that has text in it, and takes what was sent until then.
func (b *lineBuffer) await(text string) (lines []string) {
	b.mu.Lock()
	if b.wrote == nil {
		b.wrote = make(chan struct{}, 1)
		b.wrote <- struct{}{}
	}
	wrote := b.wrote
	b.mu.Unlock()
	for {
		<-wrote
		lines = append(lines, b.take()...)
		if slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, text) }) {
			return lines
		}
	}
}

// lastState returns the last requestState that the client was sent.
func (w *world) lastState() []byte {
	w.out.mu.Lock()
	defer w.out.mu.Unlock()
	const key = `"requestState":"`
	i := bytes.LastIndex(w.out.data, []byte(key))
	if i < 0 {
		return nil
	}
	state, _, _ := bytes.Cut(w.out.data[i+len(key):], []byte(`"`))
	return bytes.Clone(state)
}

// take returns the lines sent since the last call.
func (b *lineBuffer) take() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.data) == 0 {
		return nil
	}
	lines := strings.Split(strings.TrimSuffix(string(b.data), "\n"), "\n")
	b.data = nil
	return lines
}

func newWorld(t *testing.T, cfg Config, names []string, plugins map[string]func() *fakePlugin) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "gw")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	w := &world{t: t, dir: filepath.Join(dir, "plugins"), launcher: &fakeLauncher{plugins: plugins}, out: &lineBuffer{}}
	if err := os.Mkdir(w.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for key := range plugins {
		w.drop(key)
	}
	if w.home, err = store.OpenHome(filepath.Join(dir, "home")); err != nil {
		t.Fatal(err)
	}
	if w.state, err = w.home.State(w.dir); err != nil {
		t.Fatal(err)
	}
	if cfg.MaxNameLength == 0 {
		cfg.MaxNameLength = 46
	}
	if cfg.ListWait == 0 {
		cfg.ListWait = 8 * time.Second
	}
	cfg.Version = "9.9.9"
	w.cfg, w.names = cfg, names
	w.start()
	return w
}

// start makes a host's worth of gateway and slots over what is on disk, and connects the client.
func (w *world) start() {
	w.gw = New(w.cfg)
	w.gw.key = func() (key [32]byte) { return key } // so that transcripts are the same each time
	w.slots = nil
	for _, name := range w.names {
		w.slots = append(w.slots, slot.New(slot.Config{
			Name: name, PluginsDir: w.dir, Home: w.home, State: w.state, Launcher: w.launcher, Observer: w.gw,
			Jitter: func(d time.Duration) time.Duration { return d },
		}))
	}
	w.gw.SetSlots(w.slots)
	w.connect()
}

// connect makes the world's client session anew.
func (w *world) connect() {
	w.session = w.gw.NewSession(rpc.NewSink(w.out, 0))
}

// drop puts a file for "name version" into the plugins folder, old enough to count as settled.
func (w *world) drop(key string) {
	name, version, _ := strings.Cut(key, " ")
	path := filepath.Join(w.dir, name+"_v"+version)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n# "+key+"\n"), 0o700); err != nil {
		w.t.Fatal(err)
	}
	old := time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC)
	if err := os.Chtimes(path, old, old); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) close() {
	w.session.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, s := range w.slots {
		s.Close(ctx)
	}
	time.Sleep(10 * time.Second) // virtual time: plugins that were stopped while they started
}

// send hands lines to the gateway as the client's reader does.
func (w *world) send(lines ...string) {
	for _, line := range lines {
		w.session.Line([]byte(line))
	}
	w.session.Idle()
}

func (w *world) upgrade(name, to string) slot.Report {
	for _, s := range w.slots {
		if s.Name() == name {
			return s.Upgrade(context.Background(), slot.UpgradeRequest{Plugin: name, To: to, AllowBreaking: true, AllowDowngrade: true, SettleMS: -1}, nil)
		}
	}
	w.t.Fatalf("no slot %q", name)
	return slot.Report{}
}

// tool is the JSON of a tool with nothing special.
func tool(name string, more ...string) string {
	return `{"name":"` + name + `","inputSchema":{"type":"object"}` + strings.Join(more, "") + `}`
}

// many are as many tools.
func many(n int) (tools []string) {
	for i := range n {
		tools = append(tools, tool(fmt.Sprintf("tool_%d", i)))
	}
	return tools
}

// demo makes a plugin with the given tools.
func demo(tools ...string) func() *fakePlugin {
	return func() *fakePlugin {
		return &fakePlugin{
			caps:    `{"tools":{"listChanged":true},"logging":{}}`,
			lists:   map[string]string{"tools/list": `{"tools":[` + strings.Join(tools, ",") + `]}`},
			methods: []string{"demo.*"},
		}
	}
}

// listing replaces one list of a plugin.
func listing(build func() *fakePlugin, method, result string) func() *fakePlugin {
	return func() *fakePlugin {
		p := build()
		p.lists[method] = result
		return p
	}
}

// offering gives a plugin capabilities.
func offering(build func() *fakePlugin, caps string) func() *fakePlugin {
	return func() *fakePlugin {
		p := build()
		p.caps = caps
		return p
	}
}

// speaking restricts a plugin to some revisions of MCP.
func speaking(revision string, build func() *fakePlugin) func() *fakePlugin {
	return func() *fakePlugin {
		p := build()
		p.mcp = []string{revision}
		return p
	}
}

// holding gives a plugin resources that can be subscribed to, and a template.
func holding(build func() *fakePlugin, uris ...string) func() *fakePlugin {
	return func() *fakePlugin {
		p := build()
		p.caps = `{"tools":{"listChanged":true},"logging":{},"prompts":{},"completions":{},"resources":{"subscribe":true,"listChanged":true}}`
		var list []string
		for _, uri := range uris {
			list = append(list, `{"name":"r","uri":"`+uri+`"}`)
		}
		p.lists["resources/list"] = `{"resources":[` + strings.Join(list, ",") + `]}`
		p.lists["resources/templates/list"] = `{"resourceTemplates":[{"name":"t","uriTemplate":"note:///{id}"},{"name":"u","uriTemplate":"note:///pinned/{id}"}]}`
		p.lists["prompts/list"] = `{"prompts":[{"name":"greet me"}]}`
		return p
	}
}

// prime commits version 1.0.0 as the build to start, without starting it.
func (w *world) prime(name string) error {
	listing, err := store.Scan(w.dir)
	if err != nil {
		return err
	}
	for _, f := range listing.Candidates(name) {
		if f.Version.String() != "1.0.0" {
			continue
		}
		build, err := w.home.Stage(context.Background(), f)
		if err != nil {
			return err
		}
		_, err = w.state.Update(context.Background(), name, func(p *store.PluginState) error {
			p.Active = build.Ref()
			return nil
		})
		return err
	}
	return fmt.Errorf("%s 1.0.0 is not in the folder", name)
}

// newest returns the newest instance of a plugin, or nil.
func (w *world) newest(name string) *fakePlugin {
	w.launcher.mu.Lock()
	defer w.launcher.mu.Unlock()
	for i := len(w.launcher.started) - 1; i >= 0; i-- {
		if p := w.launcher.started[i]; p.name == name {
			return p
		}
	}
	return nil
}

// seen returns what the newest instance of a plugin has received.
func (w *world) seen(name string) []string {
	p := w.newest(name)
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	out := append([]string(nil), p.seen...)
	slices.SortStableFunc(out, func(a, b string) int { // sessions are opened side by side
		first := func(s string) int {
			if s == wire.MethodSessionOpen {
				return 0
			}
			return 1
		}
		return first(a) - first(b)
	})
	return out
}

// takeNow flushes first.
func (b *lineBuffer) takeNow(s *Session) []string {
	s.flush()
	synctest.Wait()
	return b.take()
}

// slotNamed is a slot that is never started.
func slotNamed(name string) *slot.Slot {
	home, err := os.MkdirTemp("", "gw")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(home) }()
	h, err := store.OpenHome(home)
	if err != nil {
		panic(err)
	}
	state, err := h.State(home)
	if err != nil {
		panic(err)
	}
	return slot.New(slot.Config{Name: name, Home: h, State: state})
}
