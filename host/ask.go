package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sox-host/sox-host/host/internal/process"
	"github.com/sox-host/sox-host/host/internal/store"
	"github.com/sox-host/sox-host/plugin/wire"
)

const (
	// DefaultAskTimeout is how long one question of the command line may take in a host: 60 s, what clients give
	// a tool call. A host does not learn that the command has gone away.
	DefaultAskTimeout = time.Minute

	// maxAsks is how many questions one host answers at once: half of what its control socket takes, so that an
	// upgrade always finds room beside calls that hang.
	maxAsks = 8

	// privateListWait is how long a host of our own waits for plugins that start: the longest start is 10 s by
	// default, and nobody else asks it.
	privateListWait = 15 * time.Second
)

// AskOptions is a question to plugins as a client would put it: the list of tools, a call of one of them, or a plain
// method.
type AskOptions struct {
	Home       string `json:"-"` // absolute
	PluginsDir string `json:"-"` // absolute
	// Private asks a host of our own even when one is running.
	Private bool `json:"-"`
	// Guard is as in Config, for a host of our own.
	Guard []string `json:"-"`

	Plugin string          `json:"plugin,omitempty"` // "" = all
	Tool   string          `json:"tool,omitempty"`   // by the plugin's own name or the one clients see
	Method string          `json:"method,omitempty"` // a plain method; Tool is ""
	Params json.RawMessage `json:"params,omitempty"` // of the method, or the arguments of the tool; nil = none

	Timeout time.Duration `json:"-"` // 0 means DefaultAskTimeout
	// TimeoutMS is Timeout on its way to a host; Ask sets it.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
}

// Answer is what came back. Result and Error are the members of the response, as raw JSON; for a list, Tools is set
// instead. Beside the failure of a tool, Tools has that tool alone, which says what it takes.
type Answer struct {
	PID    int               `json:"pid,omitempty"` // of the running host that answered; 0 = a host of our own
	Tools  []json.RawMessage `json:"tools,omitempty"`
	Result json.RawMessage   `json:"result,omitempty"`
	Error  json.RawMessage   `json:"error,omitempty"`
	// Problems say why plugins that were asked have nothing to show. With nothing else in the answer to a call, the
	// plugin could not be started.
	Problems []string `json:"problems,omitempty"`
	// NotFound says that there is no such tool; then nothing was called, and Tools are those that there are.
	NotFound string `json:"not_found,omitempty"`
}

// Ask puts a question to the oldest running host that serves the plugin, so that the answer comes from the process
// that clients talk to. Without one, or with Private, it starts a host for this one question: lists come from the
// catalog cache if it has them, else from a short start of the plugin; builds are chosen and remembered as a
// client's first request would have done.
//
// An error means that there was no answer. ErrUnknownPlugin is among its causes, and context.DeadlineExceeded.
func Ask(ctx context.Context, o AskOptions) (Answer, error) {
	if o.Plugin != "" {
		if err := checkName(o.Plugin); err != nil {
			return Answer{}, err
		}
	}
	if o.Timeout <= 0 {
		o.Timeout = DefaultAskTimeout
	}
	o.TimeoutMS = o.Timeout.Milliseconds()
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	if !o.Private {
		answer, err := askRunning(ctx, o)
		if !errors.Is(err, errNobodyServes) {
			return answer, o.late(err)
		}
	}
	answer, err := askPrivate(ctx, o)
	return answer, o.late(err)
}

// late puts the end of the time limit into words, whoever noticed it first.
func (o AskOptions) late(err error) error {
	var failed *wire.Error
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &failed) && failed.Code == wire.CodeDeadlineExceeded {
		return &lateError{after: o.Timeout, called: o.Tool != "" || o.Method != ""}
	}
	return err
}

// lateError says that a question was not answered in time.
type lateError struct {
	after  time.Duration
	called bool // something was called, and may have happened
}

func (e *lateError) Error() string {
	if e.called {
		return fmt.Sprintf("no answer within %v; it may have run", e.after)
	}
	return fmt.Sprintf("no answer within %v", e.after)
}

// Unwrap returns context.DeadlineExceeded.
func (e *lateError) Unwrap() error { return context.DeadlineExceeded }

var errNobodyServes = errors.New("no running host serves it")

func askRunning(ctx context.Context, o AskOptions) (Answer, error) {
	remotes, err := Remotes(ctx, o.Home, o.PluginsDir)
	if err != nil {
		return Answer{}, err
	}
	for _, r := range remotes {
		status, err := r.Status(ctx)
		serves := func(p PluginStatus) bool { return o.Plugin == "" || p.Plugin == o.Plugin }
		if err != nil || !slices.ContainsFunc(status.Plugins, serves) {
			continue
		}
		answer, err := r.ask(ctx, o)
		var failed *wire.Error
		switch {
		case errors.As(err, &failed) && failed.Code == wire.CodeMethodNotFound:
			continue // a host of an older version
		case o.Method != "" && answer.Error != nil && remoteError(answer.Error).Code == wire.CodeMethodNotFound:
			continue // it may serve one plugin only
		}
		answer.PID = r.PID
		return answer, err
	}
	return Answer{}, errNobodyServes
}

// ask puts a question to this host.
func (r *Remote) ask(ctx context.Context, o AskOptions) (Answer, error) {
	var answer Answer
	err := r.call(ctx, methodAsk, o, &answer, nil)
	var size *wire.FrameSizeError
	var failed *wire.Error
	if errors.As(err, &size) || errors.As(err, &failed) && failed.Code == wire.CodeResponseTooLarge {
		err = fmt.Errorf("%w; --private has no such limit", err)
	}
	return answer, err
}

// askPrivate starts a host without a client and without a control socket, asks it, and stops it again.
func askPrivate(ctx context.Context, o AskOptions) (Answer, error) {
	h, err := New(Config{Home: o.Home, PluginsDir: o.PluginsDir, Logger: hclog.NewNullLogger(), ListWait: privateListWait, Watch: WatchOff})
	if err != nil {
		return Answer{}, err
	}
	listing, missing, err := scanFolder(h.home, o.PluginsDir)
	if err != nil {
		return Answer{}, err
	}
	h.cfg.Plugin = o.Plugin // names keep their prefix: the gateway is made
	if names := h.names(listing); o.Plugin != "" && !slices.Contains(names, o.Plugin) {
		return Answer{}, unknownPlugin(o.Plugin, o.PluginsDir, missing)
	}
	h.awake.Do(func() {}) // no socket: nobody shall find this host
	h.ctx, h.since = ctx, time.Now()
	h.spawner = process.NewSpawner(process.Options{Logger: h.log, Guard: o.Guard})
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastAnswers)
		defer cancel()
		h.closeSlots(closing)
		_ = h.spawner.Close() // what would not die is the guard's to end
		h.output.close()
	}()
	h.scan(store.Scan)
	answer, failed := h.ask(ctx, o, true)
	if failed != nil {
		if err := context.Cause(ctx); err != nil {
			return answer, err
		}
		return answer, failed
	}
	return answer, nil
}

// ask answers a question in a session of its own. prefixed says whether names carry their plugin's.
func (h *Host) ask(ctx context.Context, o AskOptions, prefixed bool) (Answer, *wire.Error) {
	if h.asks.Add(1) > maxAsks {
		h.asks.Add(-1)
		return Answer{}, wire.Errorf(wire.CodeBusy, "the host already answers %d such questions: try again in a moment, or pass --private", maxAsks)
	}
	defer h.asks.Add(-1)
	timeout := DefaultAskTimeout
	if o.TimeoutMS > 0 {
		timeout = time.Duration(o.TimeoutMS) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	s := newAskSession(h)
	defer s.close()
	if o.Method != "" && !wire.IsMCPMethod(o.Method) {
		return s.request(ctx, o.Method, o.Params)
	}
	if failed := s.open(ctx); failed != nil {
		return Answer{}, failed
	}
	// Clients do not wait for a plugin whose last start failed. Who asks here may have just mended it.
	for _, broken := range h.gw.Slots() {
		if o.Plugin == "" || broken.Name() == o.Plugin {
			broken.Retry()
		}
	}
	if o.Method != "" {
		return s.request(ctx, o.Method, o.Params)
	}
	tools, failed := s.tools(ctx)
	if failed != nil {
		return Answer{}, failed
	}
	answer := Answer{Problems: h.troubles(o.Plugin)}
	var names []string
	for _, raw := range tools {
		name := string(wire.Unquote(wire.Member(raw, "name")))
		if o.Plugin != "" && prefixed && !strings.HasPrefix(name, o.Plugin+"__") {
			continue
		}
		answer.Tools = append(answer.Tools, raw)
		names = append(names, name)
	}
	if o.Tool == "" {
		return answer, nil
	}
	at := slices.Index(names, o.Tool)
	if at < 0 {
		at = slices.Index(names, o.Plugin+"__"+o.Tool)
	}
	if at < 0 {
		if len(names) == 0 && len(answer.Problems) > 0 {
			return answer, nil // it could not be started
		}
		answer.NotFound = fmt.Sprintf("%s has no tool %q", o.Plugin, o.Tool)
		return answer, nil
	}
	if o.Params == nil {
		o.Params = json.RawMessage("{}")
	}
	params, err := json.Marshal(map[string]any{"name": names[at], "arguments": o.Params})
	if err != nil {
		return Answer{}, wire.Errorf(wire.CodeInvalidParams, "arguments: %v", err)
	}
	tool := answer.Tools[at]
	answer, failed = s.request(ctx, "tools/call", params)
	if answer.Error != nil || string(wire.Member(answer.Result, "isError")) == "true" {
		answer.Tools = []json.RawMessage{tool}
	}
	return answer, failed
}

// troubles says what is wrong with plugins that show nothing.
func (h *Host) troubles(plugin string) []string {
	var all []string
	for _, s := range h.gw.Slots() {
		if plugin != "" && s.Name() != plugin {
			continue
		}
		for _, problem := range s.Status().Problems {
			all = append(all, s.Name()+": "+problem)
		}
	}
	return all
}
