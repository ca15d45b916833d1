package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sox-host/sox-host/integration/internal/stamp"
	"github.com/sox-host/sox-host/plugin/wire"
	"github.com/sox-host/sox-host/sdk"
)

// kit serves MCP in both eras, and plain methods, by hand: tests need to decide each byte of a list.
type kit struct {
	o stamp.Options
	p *sdk.Plugin

	listed sync.Once    // what happens after the first list
	called sync.Once    // what happens after the first call
	count  atomic.Int64 // calls of count; handed over by a snapshot
}

// Revisions implements sdk.MCPServer.
func (k *kit) Revisions() []string {
	return []string{"2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}
}

// Open implements sdk.MCPServer.
func (k *kit) Open(_ context.Context, s *sdk.Session) (sdk.MCPSession, error) {
	return &session{k: k, s: s}, nil
}

// session is one MCP session. It remembers in which order things came, which tests ask for.
type session struct {
	k *kit
	s *sdk.Session

	mu   sync.Mutex
	seen []string // methods in order of arrival, at most maxSeen
	uris map[string]bool
}

// maxSeen bounds the memory of one session: tests look at its beginning.
const maxSeen = 32

func (s *session) note(method string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.seen) < maxSeen {
		s.seen = append(s.seen, method)
	}
}

// Deliver implements sdk.MCPSession.
func (s *session) Deliver(env *wire.Envelope) { s.note(string(env.Method())) }

// Close implements sdk.MCPSession.
func (s *session) Close() {}

// Serve implements sdk.MCPSession.
func (s *session) Serve(ctx context.Context, r *sdk.Request) (json.RawMessage, error) {
	s.note(r.Method)
	modern := wire.Member(wire.Member(r.Params, "_meta"), "io.modelcontextprotocol/protocolVersion") != nil
	result, err := s.serve(ctx, r)
	if err != nil || !modern {
		return result, err
	}
	return s.k.complete(r.Method, result)
}

func (s *session) serve(ctx context.Context, r *sdk.Request) (json.RawMessage, error) {
	switch r.Method {
	case "initialize":
		return s.k.initialize(r)
	case "server/discover":
		return object("supportedVersions", s.k.Revisions(), "capabilities", json.RawMessage(capabilities), "instructions", "Use kit to test.")
	case "ping", "logging/setLevel":
		return json.RawMessage("{}"), nil
	case "tools/list", "prompts/list", "resources/list", "resources/templates/list":
		return s.list(ctx, r)
	case "tools/call":
		var name string
		if err := json.Unmarshal(wire.Member(r.Params, "name"), &name); err != nil {
			return nil, sdk.InvalidParams("tools/call: name is missing")
		}
		s.k.afterCall()
		return s.k.tool(ctx, s, name, r)
	case "prompts/get":
		return object("messages", []any{map[string]any{"role": "user", "content": map[string]any{"type": "text", "text": s.k.o.Version}}})
	case "resources/read":
		uri := wire.Member(r.Params, "uri")
		return object("contents", []any{map[string]any{"uri": json.RawMessage(uri), "text": s.k.o.Version}})
	case "resources/subscribe", "resources/unsubscribe":
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.uris == nil {
			s.uris = map[string]bool{}
		}
		s.uris[string(wire.Member(r.Params, "uri"))] = r.Method == "resources/subscribe"
		return json.RawMessage("{}"), nil
	case "completion/complete":
		return object("completion", map[string]any{"values": []string{s.k.o.Version}})
	case "subscriptions/listen":
		ack := map[string]any{
			"notifications": json.RawMessage(wire.Member(r.Params, "notifications")),
			"_meta":         map[string]any{"io.modelcontextprotocol/subscriptionId": r.ID},
		}
		if err := s.s.Notify("notifications/subscriptions/acknowledged", ack); err != nil {
			return nil, err
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return nil, &wire.Error{Code: wire.CodeMethodNotFound, Message: "kit does not serve " + strconv.Quote(r.Method)}
}

const capabilities = `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},"completions":{},"logging":{}}`

func (k *kit) initialize(r *sdk.Request) (json.RawMessage, error) {
	version := json.RawMessage(wire.Member(r.Params, "protocolVersion"))
	return object("protocolVersion", version, "capabilities", json.RawMessage(capabilities),
		"serverInfo", map[string]any{"name": k.o.Name, "version": k.o.Version}, "instructions", "Use kit to test.")
}

// complete adds what 2026-07-28 requires in a result.
func (k *kit) complete(method string, result json.RawMessage) (json.RawMessage, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(result, &members); err != nil {
		return nil, err
	}
	members["resultType"] = json.RawMessage(`"complete"`)
	switch method {
	case "server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read":
		members["ttlMs"], members["cacheScope"] = json.RawMessage("0"), json.RawMessage(`"private"`)
	}
	return json.Marshal(members)
}

// afterList does what the stamp says happens once a list has been answered.
func (k *kit) afterList(s *session) {
	k.listed.Do(func() {
		for range k.o.Shout {
			if err := s.s.Notify("notifications/tools/list_changed", nil); err != nil {
				k.p.Logger().Warn("shout", "error", err)
			}
		}
		if k.o.ExitAfterList {
			time.AfterFunc(answerTime, func() { os.Exit(4) })
		}
		k.crashAfter(k.o.CrashAfterListMS)
	})
}

// afterCall does what the stamp says happens once there was a call.
func (k *kit) afterCall() { k.called.Do(func() { k.crashAfter(k.o.CrashAfterCallMS) }) }

// answerTime is what an answer gets to leave the process before its end: 50 ms.
const answerTime = 50 * time.Millisecond

func (k *kit) crashAfter(ms int) {
	if ms == 0 {
		return
	}
	time.AfterFunc(time.Duration(ms)*time.Millisecond, func() {
		if k.o.CrashUnless != "" {
			if _, err := os.Stat(k.o.CrashUnless); err == nil {
				return
			}
		}
		fmt.Fprintln(os.Stderr, "kit: crash as planned")
		os.Exit(5)
	})
}

func (k *kit) save(context.Context) (int64, error) { return k.count.Load(), nil }

func (k *kit) restore(_ context.Context, n int64) error { k.count.Store(n); return nil }

// object encodes names and values as one JSON object, in the order given.
func object(pairs ...any) (json.RawMessage, error) {
	out := []byte{'{'}
	for i := 0; i < len(pairs); i += 2 {
		if i > 0 {
			out = append(out, ',')
		}
		raw, ok := pairs[i+1].(json.RawMessage)
		if !ok {
			var err error
			if raw, err = encode(pairs[i+1]); err != nil {
				return nil, err
			}
		}
		if raw == nil {
			raw = json.RawMessage("null")
		}
		out = fmt.Appendf(out, "%q:", pairs[i])
		out = append(out, raw...)
	}
	return append(out, '}'), nil
}

// encode is json.Marshal without the escapes for HTML, which would make large texts longer.
func encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}
