package sdk

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Plugin is what an author builds: a name, a version, handlers and hooks. Fill it before serving; the calls that
// register something panic afterwards, and on misuse (a name twice, a type no schema can describe), because both are
// faults in the program and not in its input. Once it is served a Plugin is read only and safe for concurrent use. It
// can be served more than once.
type Plugin struct {
	name, version string
	title         string
	instructions  string
	limits        Limits
	exclusive     bool
	serial        bool
	locked        bool // read-only lock

	methods   map[string]*handler
	patterns  []*handler // methods ending in "*", in the order of registration
	tools     []*tool
	toolNamed map[string]*tool
	adapter   MCPServer // set by an adapter package; nil means the built-in tool server

	openHooks  []func(*Session)
	closeHooks []func(*Session, CloseReason)
	stopHooks  []func(context.Context)
	health     func(context.Context) error
	save       func(context.Context) (json.RawMessage, error)
	restore    func(context.Context, json.RawMessage) error

	redact redactor
	logOut *logOutput
	log    func() *slog.Logger
	idle   time.Duration // stop after so long without work; 0 means never

	served   atomic.Bool
	sessions atomic.Int64
	conns    atomic.Uint64 // ids of connections ever made
}

// New returns a plugin. The name is `[a-z][a-z0-9-]{0,31}` and the version strict SemVer, both as in the name of the
// file it is dropped as; a leading v on the version is accepted. New panics when they are not.
func New(name, version string, settings ...Setting) *Plugin {
	version = strings.TrimPrefix(version, "v")
	if !validName(name) {
		panic(fmt.Sprintf("sdk.New: name %q: want a lower case letter followed by at most 31 of a-z, 0-9 and -", name))
	}
	if !validVersion(version) {
		panic(fmt.Sprintf("sdk.New: version %q: want MAJOR.MINOR.PATCH as in SemVer 2.0.0", version))
	}
	p := &Plugin{
		name:      name,
		version:   version,
		limits:    DefaultLimits(),
		methods:   map[string]*handler{},
		toolNamed: map[string]*tool{},
	}
	p.logOut = &logOutput{redact: &p.redact}
	p.log = sync.OnceValue(p.newLogger)
	for _, set := range settings {
		set(p)
	}
	return p
}

// Setting is an option of [New].
type Setting func(*Plugin)

// WithLimits sets the plugin's bounds; a field that is 0 keeps its default. See [WorkerLimits] for a strict set.
func WithLimits(l Limits) Setting { return func(p *Plugin) { p.limits = l.withDefaults() } }

// WithTitle sets the name shown to people.
func WithTitle(title string) Setting { return func(p *Plugin) { p.title = title } }

// WithInstructions sets the text that MCP clients give to their model together with the tools. Some clients cut it at 2
// KB.
func WithInstructions(text string) Setting { return func(p *Plugin) { p.instructions = text } }

// Exclusive says that two instances must not run side by side, for example because the plugin holds a lock on a file.
// The host then stops the old one before it starts the new one, and calls wait meanwhile.
func Exclusive() Setting { return func(p *Plugin) { p.exclusive = true } }

// Serial says that the plugin handles one request at a time. Others wait in its queue.
func Serial() Setting {
	return func(p *Plugin) { p.serial = true }
}

// RetireWhenIdle stops the plugin, as a shutdown would, once it has had no work for d. Connections, sessions, lists and
// health checks are no work. It suits plugins that serve several hosts; the host has a setting of its own for the
// others.
func RetireWhenIdle(d time.Duration) Setting { return func(p *Plugin) { p.idle = d } }

// Name is as given to New.
func (p *Plugin) Name() string { return p.name }

// Version is as given to New, without a leading v.
func (p *Plugin) Version() string { return p.version }

// Limits returns the bounds in force.
func (p *Plugin) Limits() Limits {
	l := p.limits
	if p.serial {
		l.Concurrency = 1
	}
	return l
}

// Sessions returns how many sessions are open over all connections. It is for people who look; nothing in this package
// keeps a plugin alive because of it.
func (p *Plugin) Sessions() int { return int(p.sessions.Load()) }

// LockReadOnly refuses every handler that is not declared [ReadOnly] with CodeReadOnly, for the life of the process.
// Nothing that arrives in a request can lift it. --read-only and SOX_PLUGIN_READ_ONLY=1 do the same. Call it before
// serving.
func (p *Plugin) LockReadOnly() { p.registering("LockReadOnly"); p.locked = true }

// ReadOnlyLocked reports whether the lock is on.
func (p *Plugin) ReadOnlyLocked() bool { return p.locked }

// Redact declares member names whose values must never leave the process: in results, in error messages and data, and
// in logs they are replaced by "[redacted]". Names are compared without case, and with "-" and "_" taken as equal.
func (p *Plugin) Redact(names ...string) { p.registering("Redact"); p.redact.add(names) }

// OnSessionOpen adds a hook that runs once for each session, before the first handler of that session starts. A hook
// that panics is logged and otherwise ignored.
func (p *Plugin) OnSessionOpen(hook func(*Session)) {
	p.registering("OnSessionOpen")
	p.openHooks = append(p.openHooks, hook)
}

// OnSessionClose adds a hook that runs once for each session that was opened, whichever way it ends, also when the host
// was killed. Requests of the session have been cancelled by then, but one that ignores its context may still run.
func (p *Plugin) OnSessionClose(hook func(*Session, CloseReason)) {
	p.registering("OnSessionClose")
	p.closeHooks = append(p.closeHooks, hook)
}

// OnShutdown adds a hook that runs once when the plugin ends, after the last request: told to stop, or left by its
// host. Its context ends with the time there is, some hundred milliseconds.
func (p *Plugin) OnShutdown(hook func(context.Context)) {
	p.registering("OnShutdown")
	p.stopHooks = append(p.stopHooks, hook)
}

// Health sets the check behind the host's health request: nil means healthy, an error is reported as its text. Without
// it the host only knows that the process answers. A health check is no work: it never keeps an idle plugin alive.
// The host also asks a plugin that has calls open and has been silent for 5 s, and kills it if nothing comes for
// another 5 s: a check must answer well within that, and stop with its context.
func (p *Plugin) Health(check func(context.Context) error) { p.registering("Health"); p.health = check }

// State lets a plugin hand its state to the version that replaces it: save runs in the old one, beside its handlers, and
// restore in the new one before it gets its first request. T travels as JSON, in one frame: 16 MiB at most. Both versions
// must call State for the hand-over to happen. An error of either ends an upgrade or a restart, and the old process goes
// on with its state; a rollback goes on without it.
//
// A plugin that is not [Exclusive] goes on serving after save has returned. What calls change there until the cutover,
// and what those change that are still open at the cutover, is not in the state: the new version never sees it, and it is
// lost. Calls of an Exclusive plugin wait instead, from before save until the new version serves, and nothing is lost but
// time. Either way a crash takes the state with it: what must survive belongs on disk.
func State[T any](p *Plugin, save func(context.Context) (T, error), restore func(context.Context, T) error) {
	p.registering("State")
	p.save = func(ctx context.Context) (json.RawMessage, error) {
		v, err := save(ctx)
		if err != nil {
			return nil, err
		}
		return encode(v)
	}
	p.restore = func(ctx context.Context, raw json.RawMessage) error {
		var v T
		if err := json.Unmarshal(raw, &v); err != nil {
			return InvalidParams("the state cannot be read: %v", err)
		}
		return restore(ctx, v)
	}
}

// registering panics when the plugin is being served already.
func (p *Plugin) registering(what string) {
	if p.served.Load() {
		panic(fmt.Sprintf("sdk: %s after plugin %q began to serve", what, p.name))
	}
}

// ServeConn serves one host over rw, which it closes, until the host is done with it: nil after a clean end (the stream
// ended between frames, the host asked for shutdown, ctx ended), an error otherwise. It is what Serve does with the
// socket it was given.
func (p *Plugin) ServeConn(ctx context.Context, rw io.ReadWriteCloser) error {
	srv := newServer(p)
	defer srv.finish()
	return srv.serve(ctx, rw, false)
}

// ServeLines serves one client as an ordinary MCP server and plain JSON-RPC, one object per line: what Serve does with
// stdin and stdout when the plugin was started by hand. It returns when in has ended and what was open is answered,
// when ctx ends, or when out breaks. A Read of in that blocks is left behind. A bad line is answered if it shows an id,
// and ends nothing. Arrays of envelopes, which only MCP 2025-03-26 knows, are ignored.
func (p *Plugin) ServeLines(ctx context.Context, in io.Reader, out io.Writer) error {
	return newServer(p).serveLines(ctx, in, out)
}
