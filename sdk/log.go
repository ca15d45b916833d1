package sdk

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"math"
	"os"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/sox-host/sox-host/plugin/wire"
)

// EnvLogLevel sets the least severe level that a plugin logs: debug, info (the default), warn, error or off.
const EnvLogLevel = "SOX_PLUGIN_LOG_LEVEL"

// Logger returns the plugin's log, for its owner: JSON lines on stderr, which the host keeps with their level and
// fields; plain text when stderr is a terminal. Values of members named to Redact are replaced. Safe for concurrent
// use.
func (p *Plugin) Logger() *slog.Logger { return p.log() }

// SetLogOutput sends the log elsewhere, for tests. nil means stderr.
func (p *Plugin) SetLogOutput(w io.Writer) { p.logOut.set(w) }

// newLogger makes the log when the first line is written: most plugins say nothing before they are ready.
func (p *Plugin) newLogger() *slog.Logger {
	opts := &slog.HandlerOptions{Level: leastLevel(os.Getenv(EnvLogLevel)), ReplaceAttr: readable}
	if isTerminal(os.Stderr) {
		return slog.New(slog.NewTextHandler(p.logOut, opts))
	}
	return slog.New(slog.NewJSONHandler(p.logOut, opts))
}

// leastLevel reads the value of EnvLogLevel.
func leastLevel(value string) slog.Level {
	switch strings.ToLower(value) {
	case "trace", "debug":
		return slog.LevelDebug
	case "warn", "warning":
		return slog.LevelWarn
	case "error":
		return slog.LevelError
	case "off":
		return math.MaxInt
	}
	return slog.LevelInfo
}

// readable writes durations as people do, instead of in nanoseconds.
func readable(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

// logOutput writes log lines with declared values replaced. Package slog writes each line with one Write.
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

// Log sends a log message to the client of the running request, for people who look at it there, as MCP's
// notifications/message. level is one of MCP's: debug, info, notice, warning, error, critical, alert, emergency. The
// client sees it if it asked for that level. It waits for a host that does not read as fast, until ctx or the request
// ends. Use [Plugin.Logger] for what the owner of the plugin should see.
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
	_ = k.tell(ctx, func(dst []byte) []byte { // nobody is left to read it
		return wire.AppendNotification(dst, k.session.number, "notifications/message", params)
	})
}

// oneLine keeps a message on one line.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
