package sdk

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sox-host/sox-host/plugin/wire"
)

// EnvLogLevel sets the least severe level that a plugin logs: trace, debug, info (the default), warn, error or off.
const EnvLogLevel = "SOX_PLUGIN_LOG_LEVEL"

// Logger returns the plugin's log: JSON lines on stderr, which the host keeps with their level and fields; plain text when stderr is a terminal.
// Values of members named to Redact are replaced.
func (p *Plugin) Logger() hclog.Logger { return p.logger }

// Slog returns the same log for those who prefer log/slog.
func (p *Plugin) Slog() *slog.Logger { return slog.New(&slogHandler{log: p.logger}) }

// SetLogOutput sends the log elsewhere, for tests. nil means stderr.
func (p *Plugin) SetLogOutput(w io.Writer) { p.logOut.set(w) }

func (p *Plugin) newLogger() {
	p.logOut = &logOutput{redact: &p.redact}
	level := hclog.LevelFromString(os.Getenv(EnvLogLevel))
	if level == hclog.NoLevel {
		level = hclog.Info
	}
	p.logger = hclog.New(&hclog.LoggerOptions{
		Name:       p.name,
		Level:      level,
		Output:     p.logOut,
		JSONFormat: !isTerminal(os.Stderr),
	})
}

// logOutput writes log lines with declared values replaced. hclog writes each line with one Write.
type logOutput struct {
	redact *redactor
	mu     sync.Mutex
	w      io.Writer
}

func (o *logOutput) set(w io.Writer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.w = w
}

func (o *logOutput) Write(line []byte) (int, error) {
	clean := line
	if o.redact.active() {
		if body := bytes.TrimRight(line, "\n"); wire.ValidValue(body) {
			clean = append(bytes.Clone(o.redact.json(json.RawMessage(body))), '\n')
		} else {
			clean = []byte(o.redact.text(string(line)))
		}
	}
	o.mu.Lock()
	w := o.w
	o.mu.Unlock()
	if w == nil {
		w = os.Stderr
	}
	if _, err := w.Write(clean); err != nil {
		return 0, err
	}
	return len(line), nil
}

// slogHandler writes slog records to an hclog logger. Groups become prefixes: "group.key".
type slogHandler struct {
	log    hclog.Logger
	prefix string
}

func hclogLevel(l slog.Level) hclog.Level {
	switch {
	case l < slog.LevelDebug:
		return hclog.Trace
	case l < slog.LevelInfo:
		return hclog.Debug
	case l < slog.LevelWarn:
		return hclog.Info
	case l < slog.LevelError:
		return hclog.Warn
	}
	return hclog.Error
}

func (h *slogHandler) Enabled(_ context.Context, l slog.Level) bool {
	return h.log.GetLevel() <= hclogLevel(l)
}

func (h *slogHandler) Handle(_ context.Context, r slog.Record) error {
	var pairs []any
	r.Attrs(func(a slog.Attr) bool {
		pairs = appendAttr(pairs, h.prefix, a)
		return true
	})
	h.log.Log(hclogLevel(r.Level), r.Message, pairs...)
	return nil
}

func (h *slogHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	var pairs []any
	for _, a := range attrs {
		pairs = appendAttr(pairs, h.prefix, a)
	}
	return &slogHandler{log: h.log.With(pairs...), prefix: h.prefix}
}

func (h *slogHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return &slogHandler{log: h.log, prefix: h.prefix + name + "."}
}

// appendAttr flattens one attribute into key and value pairs.
func appendAttr(pairs []any, prefix string, a slog.Attr) []any {
	v := a.Value.Resolve()
	if v.Kind() == slog.KindGroup {
		if a.Key != "" {
			prefix += a.Key + "."
		}
		for _, inner := range v.Group() {
			pairs = appendAttr(pairs, prefix, inner)
		}
		return pairs
	}
	if a.Key == "" {
		return pairs
	}
	value := v.Any()
	switch x := value.(type) {
	case time.Duration:
		value = x.String()
	case error:
		value = x.Error()
	}
	return append(pairs, prefix+a.Key, value)
}

// stack is the calling goroutine's stack as text.
func stack() string { return string(debug.Stack()) }

// levels are MCP's, least severe first.
var levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// levelOf reads a raw MCP level, "" if it is none.
func levelOf(raw []byte) string {
	var level string
	if json.Unmarshal(raw, &level) != nil || severity(level) < 0 {
		return ""
	}
	return level
}

func severity(level string) int {
	for i, l := range levels {
		if l == level {
			return i
		}
	}
	return -1
}

// Log sends a log message to the client of the running request, for people who look at it there, as MCP's notifications/message. level is one of
// MCP's: debug, info, notice, warning, error, critical, alert, emergency. The client sees it if it asked for that level. Use [Plugin.Logger] for
// what the owner of the plugin should see.
func Log(ctx context.Context, level string, data any) {
	k, ok := ctx.Value(callKey{}).(*call)
	if !ok || severity(level) < 0 {
		return
	}
	wanted := k.session.LogLevel()
	if k.env.MetaProtocolVersion() != nil {
		// "The server MUST NOT send notifications/message for a request without a log level."
		if wanted = levelOf(k.env.MetaLogLevel()); wanted == "" {
			return
		}
	}
	if wanted != "" && severity(level) < severity(wanted) {
		return
	}
	params, err := encode(map[string]any{"level": level, "logger": k.c.srv.p.name, "data": data})
	if err != nil {
		return
	}
	params = k.c.srv.p.redact.json(params)
	if k.progress(func(dst []byte) []byte {
		return wire.AppendNotification(dst, k.session.number, "notifications/message", params)
	}) == nil {
		_ = k.c.flush()
	}
}

// oneLine keeps a message on one line.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
