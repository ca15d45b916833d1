package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sox-host/sox-host/integration/internal/stamp"
	"github.com/sox-host/sox-host/plugin/wire"
	"github.com/sox-host/sox-host/sdk"
)

// input is the arguments of all tools; each uses some.
type input struct {
	MS     int             `json:"ms"`     // sleep, progress, append: milliseconds in all
	Steps  int             `json:"steps"`  // progress
	Bytes  int             `json:"bytes"`  // big, noise
	Where  string          `json:"where"`  // noise: "stderr", "stdout"
	Line   int             `json:"line"`   // noise: bytes a line
	When   string          `json:"when"`   // crash: "before", "during", "after"; frame: one of brokenFrames
	Until  string          `json:"until"`  // hold, append: wait until this file exists
	Left   string          `json:"left"`   // hold: file that gets a line when the call is cancelled
	File   string          `json:"file"`   // append, hold: the ledger
	Nonce  string          `json:"nonce"`  // append, hold: what to write into it
	Die    bool            `json:"die"`    // append: die after the line is in the file and before the answer
	Unless string          `json:"unless"` // append: do not die if this file exists; it is made before dying
	Method string          `json:"method"` // ask
	Params json.RawMessage `json:"params"` // ask
	Name   string          `json:"name"`   // env
	Count  int             `json:"count"`  // shout
}

// tool is one row of the table of tools.
type tool struct {
	name, description string
	properties        string // of the input schema
	hint              string // annotation
	run               func(k *kit, ctx context.Context, s *session, in input, r *sdk.Request) (json.RawMessage, error)
}

var tools []tool

func init() { // the functions use the table
	tools = []tool{
		{"echo", "Says the arguments back.", `"text":{"type":"string"}`, "readOnlyHint", (*kit).echo},
		{"sleep", "Answers after some time.", `"ms":{"type":"integer"}`, "", (*kit).sleep},
		{"hold", "Answers when a file exists.", `"until":{"type":"string"}`, "", (*kit).hold},
		{"peek", "Like hold, and changes nothing.", `"until":{"type":"string"}`, "readOnlyHint", (*kit).hold},
		{"crash", "Ends the process.", `"when":{"type":"string"}`, "", (*kit).crash},
		{"big", "Answers with many bytes.", `"bytes":{"type":"integer"}`, "readOnlyHint", (*kit).big},
		{"noise", "Writes to stderr or stdout.", `"where":{"type":"string"}`, "", (*kit).noise},
		{"ask", "Asks the client.", `"method":{"type":"string"}`, "", (*kit).ask},
		{"progress", "Reports progress.", `"steps":{"type":"integer"}`, "", (*kit).progress},
		{"append", "Appends a line to a file.", `"nonce":{"type":"string"}`, "", (*kit).append},
		{"append_idempotent", "Appends a line to a file; twice is as good as once.", `"nonce":{"type":"string"}`, "idempotentHint", (*kit).append},
		{"env", "Says the value of a variable.", `"name":{"type":"string"}`, "readOnlyHint", (*kit).env},
		{"context", "Says what came with the call.", "", "readOnlyHint", (*kit).context},
		{"seen", "Lists the methods that came in this session.", "", "readOnlyHint", (*kit).seen},
		{"shout", "Sends list_changed.", `"count":{"type":"integer"}`, "", (*kit).shout},
		{"count", "Counts its calls.", "", "", (*kit).counter},
		{"frame", "Breaks the frames that it answers in.", `"when":{"type":"string"}`, "", (*kit).frame},
	}
}

// tool runs a tool for MCP.
func (k *kit) tool(ctx context.Context, s *session, name string, r *sdk.Request) (json.RawMessage, error) {
	structured, err := k.run(ctx, s, name, wire.Member(r.Params, "arguments"), r)
	var coded *wire.Error
	switch {
	case err == nil:
	case ctx.Err() != nil, errors.As(err, &coded):
		return nil, err
	default:
		return object("content", []any{map[string]any{"type": "text", "text": err.Error()}}, "isError", true)
	}
	text := fmt.Sprintf("%s %s", name, k.o.Version)
	return object("content", []any{map[string]any{"type": "text", "text": text}}, "structuredContent", structured)
}

// method runs a tool as a plain method: kit.echo.
func (k *kit) method(ctx context.Context, r *sdk.Request) (json.RawMessage, error) {
	k.afterCall()
	return k.run(ctx, nil, strings.TrimPrefix(r.Method, k.o.Name+"."), r.Params, r)
}

// run runs a tool. s is nil for a plain method.
func (k *kit) run(ctx context.Context, s *session, name string, arguments []byte, r *sdk.Request) (json.RawMessage, error) {
	for _, t := range tools {
		if t.name != name {
			continue
		}
		var in input
		// echo takes anything; the others find out by what they miss.
		_ = json.Unmarshal(arguments, &in)
		return t.run(k, ctx, s, in, r)
	}
	if (k.o.List == stamp.ListNames || k.o.List == stamp.ListNamesMended) && slices.Contains(stamp.OddNames, name) {
		return k.answer("nonce", name)
	}
	if strings.HasPrefix(name, "extra_") || strings.HasPrefix(name, "many_") || name == "fresh" {
		return k.answer()
	}
	return nil, &wire.Error{Code: wire.CodeInvalidParams, Message: "kit has no tool " + fmt.Sprintf("%q", name)}
}

// answer is the structured content of a result: version, pid, and more.
func (k *kit) answer(pairs ...any) (json.RawMessage, error) {
	return object(append([]any{"version", k.o.Version, "pid", os.Getpid()}, pairs...)...)
}

func (k *kit) echo(_ context.Context, s *session, _ input, r *sdk.Request) (json.RawMessage, error) {
	arguments := r.Params
	if s != nil {
		arguments = wire.Member(r.Params, "arguments")
	}
	return k.answer("arguments", json.RawMessage(arguments))
}

func (k *kit) sleep(ctx context.Context, _ *session, in input, _ *sdk.Request) (json.RawMessage, error) {
	if err := wait(ctx, time.Duration(in.MS)*time.Millisecond); err != nil {
		return nil, err
	}
	return k.answer()
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pollInterval is how often hold looks for its file: 2 ms.
const pollInterval = 2 * time.Millisecond

// until waits for a file to exist.
func until(ctx context.Context, path string) error {
	for path != "" {
		if _, err := os.Stat(path); err == nil {
			return nil
		}
		if err := wait(ctx, pollInterval); err != nil {
			return err
		}
	}
	return nil
}

// hold writes a line into the ledger, if one is given, so that a test knows that it began, and waits.
func (k *kit) hold(ctx context.Context, _ *session, in input, _ *sdk.Request) (json.RawMessage, error) {
	if err := k.ledger(in); err != nil {
		return nil, err
	}
	if err := until(ctx, in.Until); err != nil {
		if in.Left != "" {
			mark(in.Left)
		}
		return nil, err
	}
	return k.answer("nonce", in.Nonce)
}

// append writes its line, may die before it answers, and may wait in between.
func (k *kit) append(ctx context.Context, _ *session, in input, _ *sdk.Request) (json.RawMessage, error) {
	if err := k.ledger(in); err != nil {
		return nil, err
	}
	if err := until(ctx, in.Until); err != nil {
		return nil, err
	}
	if err := wait(ctx, time.Duration(in.MS)*time.Millisecond); err != nil {
		return nil, err
	}
	if in.Die && k.dies(in.Unless) {
		os.Exit(3)
	}
	return k.answer("nonce", in.Nonce)
}

// dies reports whether to die, and leaves the file that says it is enough.
func (k *kit) dies(unless string) bool {
	if unless == "" {
		return true
	}
	f, err := os.OpenFile(unless, os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return false
	}
	return f.Close() == nil
}

// ledger appends "nonce version pid" in one write and flushes it. That line is the side effect which must not happen twice.
func (k *kit) ledger(in input) error {
	if in.File == "" {
		return nil
	}
	f, err := os.OpenFile(in.File, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s %s %d\n", in.Nonce, k.o.Version, os.Getpid())
	return errors.Join(err, f.Sync(), f.Close())
}

func (k *kit) crash(ctx context.Context, _ *session, in input, _ *sdk.Request) (json.RawMessage, error) {
	fmt.Fprintf(os.Stderr, "kit: crash %s\n", in.When)
	switch in.When {
	case "during":
		sdk.Progress(ctx, 1, 2, "half")
		time.Sleep(answerTime)
	case "after":
		time.AfterFunc(answerTime, func() { os.Exit(5) })
		return k.answer()
	}
	os.Exit(5)
	return nil, nil
}

// pattern is what big answers with: it has everything that an escaping bug would change.
const pattern = "0123456789 abc ÄÖÜ ✓ / <b>&amp; "

func (k *kit) big(_ context.Context, _ *session, in input, _ *sdk.Request) (json.RawMessage, error) {
	text := strings.Repeat(pattern, in.Bytes/len(pattern)+1)[:in.Bytes]
	return k.answer("text", strings.ToValidUTF8(text, "?"))
}

// noise floods one of the two outputs that must never reach the client.
func (k *kit) noise(_ context.Context, _ *session, in input, _ *sdk.Request) (json.RawMessage, error) {
	out := os.Stderr
	if in.Where == "stdout" {
		out = os.Stdout
	}
	line := append(bytes.Repeat([]byte{'.'}, max(in.Line, 1)-1), '\n')
	for written := 0; written < in.Bytes; written += len(line) {
		if _, err := out.Write(line); err != nil {
			return nil, err
		}
	}
	return k.answer()
}

func (k *kit) ask(ctx context.Context, s *session, in input, _ *sdk.Request) (json.RawMessage, error) {
	if s == nil {
		return nil, errors.New("ask needs an MCP session")
	}
	result, err := s.s.Call(ctx, in.Method, in.Params)
	if err != nil {
		return nil, err
	}
	return k.answer("answer", result)
}

func (k *kit) progress(ctx context.Context, _ *session, in input, _ *sdk.Request) (json.RawMessage, error) {
	for i := range in.Steps {
		sdk.Progress(ctx, float64(i+1), float64(in.Steps), "step")
		if err := wait(ctx, time.Duration(in.MS/max(in.Steps, 1))*time.Millisecond); err != nil {
			return nil, err
		}
	}
	return k.answer()
}

func (k *kit) env(_ context.Context, _ *session, in input, _ *sdk.Request) (json.RawMessage, error) {
	value, set := os.LookupEnv(in.Name)
	return k.answer("value", value, "set", set)
}

func (k *kit) context(ctx context.Context, s *session, _ input, r *sdk.Request) (json.RawMessage, error) {
	client := ""
	if s != nil {
		client = s.s.Client().Name
	}
	return k.answer("project_path", sdk.ProjectPath(ctx), "meta", json.RawMessage(wire.Member(r.Params, "_meta")), "client", client)
}

func (k *kit) seen(_ context.Context, s *session, _ input, _ *sdk.Request) (json.RawMessage, error) {
	if s == nil {
		return nil, errors.New("seen needs an MCP session")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return k.answer("methods", s.seen)
}

func (k *kit) shout(_ context.Context, s *session, in input, _ *sdk.Request) (json.RawMessage, error) {
	for range in.Count {
		if err := s.s.Notify("notifications/tools/list_changed", nil); err != nil {
			return nil, err
		}
	}
	return k.answer()
}

func (k *kit) counter(context.Context, *session, input, *sdk.Request) (json.RawMessage, error) {
	return k.answer("count", k.count.Add(1))
}

// brokenFrames are the ways to break the frames between plugin and host.
var brokenFrames = map[string]string{
	"zero":   "\x00\x00\x00\x00",                 // a length that no frame has
	"huge":   "\xff\xff\xff\xff",                 // a length over any limit
	"array":  "\x00\x00\x00\x02[]",               // no object
	"utf8":   "\x00\x00\x00\x09{\"a\":\"\xff\"}", // no text
	"half":   "\x00\x00\x01\x00{\"jsonrpc",       // the rest is whatever comes next
	"cut":    "\x00\x00\x01\x00{\"jsonrpc",       // and then the process ends
	"slow":   "\x00\x00\x01\x00{\"jsonrpc",       // the rest comes a byte at a time, and never to its end
	"header": "\x00\x00",                         // and then the process ends
}

// slowByte is the time from one byte of a slow frame to the next: at 150 ms the frame would take 37 s.
const slowByte = 150 * time.Millisecond

// frame writes bytes between two frames that are none.
func (k *kit) frame(ctx context.Context, _ *session, in input, _ *sdk.Request) (json.RawMessage, error) {
	bytes, ok := brokenFrames[in.When]
	if !ok || !rawWrite([]byte(bytes)) {
		return nil, fmt.Errorf("frame %q cannot be written", in.When)
	}
	switch in.When {
	case "cut", "header":
		os.Exit(6)
	case "slow":
		if err := k.ledger(in); err != nil { // it has begun
			return nil, err
		}
		for ctx.Err() == nil && rawWrite([]byte{' '}) {
			if err := wait(ctx, slowByte); err != nil {
				return nil, err
			}
		}
	}
	return k.answer()
}
