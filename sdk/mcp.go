package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/sox-host/sox-host/plugin/wire"
)

// MCPServer is the MCP side of a plugin. The built-in one serves the tools given to [Tool]; package mcpserver is
// another, which serves an official go-sdk server. Authors do not implement it.
type MCPServer interface {
	// Revisions are the MCP revisions served, newest first.
	Revisions() []string
	// Open starts the MCP side of one session. ctx carries the session and ends with it. Requests and notifications
	// wait for Open.
	Open(ctx context.Context, s *Session) (MCPSession, error)
}

// MCPSession is the MCP side of one session.
type MCPSession interface {
	// Serve answers one request, on a goroutine of its own. ctx ends when the request is cancelled, its deadline passes
	// or the session ends; the answer is then no longer wanted. Errors are treated like those of a handler.
	Serve(ctx context.Context, r *Request) (json.RawMessage, error)
	// Deliver takes a notification and owns its bytes. Calls come one after the other, and must not block.
	Deliver(env *wire.Envelope)
	// Close is called once, after the context of Open has ended.
	Close()
}

// ToolInfo is a tool as --help shows it.
type ToolInfo struct{ Name, Description string }

// ToolLister is an MCPServer that can say which tools it has without a session.
type ToolLister interface {
	Tools(ctx context.Context) ([]ToolInfo, error)
}

// ServeMCP makes server the MCP side of the plugin, instead of the built-in one. It is for adapters; it panics when
// tools are registered too.
func (p *Plugin) ServeMCP(server MCPServer) {
	p.registering("ServeMCP")
	if len(p.tools) > 0 || p.adapter != nil {
		panic("sdk: a plugin serves its tools either with sdk.Tool or with one adapted MCP server")
	}
	p.adapter = server
}

const metaServerInfo = "io.modelcontextprotocol/serverInfo"

// servesMCP reports whether the plugin is an MCP server at all.
func (p *Plugin) servesMCP() bool { return p.adapter != nil || len(p.tools) > 0 || len(p.methods) == 0 }

func (p *Plugin) mcpServer() MCPServer {
	if p.adapter != nil {
		return p.adapter
	}
	return toolServer{p}
}

// toolServer is the built-in MCP server: tools, and nothing else.
type toolServer struct{ p *Plugin }

func (t toolServer) Revisions() []string { return wire.Revisions() }

func (t toolServer) Open(_ context.Context, s *Session) (MCPSession, error) {
	return &toolSession{p: t.p, s: s}, nil
}

// Tools implements ToolLister.
func (t toolServer) Tools(context.Context) ([]ToolInfo, error) {
	var infos []ToolInfo
	for _, tool := range t.p.tools {
		infos = append(infos, ToolInfo{tool.name, tool.description})
	}
	return infos, nil
}

// toolSession is one session with it. It keeps no state but what the Session has.
type toolSession struct {
	p *Plugin
	s *Session
}

func (t *toolSession) Deliver(*wire.Envelope) {} // notifications/initialized and others ask nothing of tools
func (t *toolSession) Close()                 {}

// Serve answers one request of either era: a request that claims a revision in its _meta is modern, any other is
// legacy.
func (t *toolSession) Serve(ctx context.Context, r *Request) (json.RawMessage, error) {
	claim := r.env.MetaProtocolVersion()
	if claim == nil {
		return t.legacy(ctx, r)
	}
	var asked string
	if json.Unmarshal(claim, &asked) != nil || asked != wire.RevisionModern {
		data, err := encode(map[string]any{"supported": wire.Revisions(), "requested": clip(asked)})
		if err != nil {
			return nil, err
		}
		return nil, &wire.Error{Code: wire.CodeUnsupportedVersion, Message: "unsupported protocol version", Data: data}
	}
	if c := r.env.MetaClientCapabilities(); len(c) == 0 || c[0] != '{' {
		return nil, InvalidParams("%s: _meta lacks io.modelcontextprotocol/clientCapabilities", r.Method)
	}
	result, err := t.modern(ctx, r)
	if err != nil {
		return nil, err
	}
	return t.complete(result)
}

func (t *toolSession) legacy(ctx context.Context, r *Request) (json.RawMessage, error) {
	switch r.Method {
	case "initialize":
		return t.initialize(r)
	case "ping":
		return json.RawMessage("{}"), nil
	case "logging/setLevel":
		level := levelOf(wire.Member(r.Params, "level"))
		if level == "" {
			return nil, InvalidParams("logging/setLevel: unknown level")
		}
		t.s.setLevel(level)
		return json.RawMessage("{}"), nil
	case "tools/list":
		return t.list(r)
	case "tools/call":
		return t.call(ctx, r)
	}
	return nil, t.unknown(r)
}

func (t *toolSession) modern(ctx context.Context, r *Request) (json.RawMessage, error) {
	switch r.Method {
	case "server/discover":
		return t.introduction(map[string]any{"supportedVersions": wire.Revisions(), "ttlMs": 0, "cacheScope": "private"})
	case "tools/list":
		return t.list(r)
	case "tools/call":
		return t.call(ctx, r)
	case "subscriptions/listen":
		return t.listen(ctx, r)
	}
	return nil, t.unknown(r)
}

func (t *toolSession) unknown(r *Request) error {
	return t.p.fault(wire.CodeMethodNotFound, wire.ExecutedNo, "plugin %s %s does not serve %q", t.p.name, t.p.version, clip(r.Method))
}

// capabilities of the built-in server. Its list never changes while it runs.
const capabilities = `{"logging":{},"tools":{}}`

func (t *toolSession) initialize(r *Request) (json.RawMessage, error) {
	var params struct {
		ProtocolVersion string `json:"protocolVersion"`
	}
	if json.Unmarshal(r.Params, &params) != nil || params.ProtocolVersion == "" {
		return nil, InvalidParams("initialize: protocolVersion is missing")
	}
	// "If the server supports the requested protocol version, it MUST respond with the same version." Never with a
	// modern one: those have no initialize.
	version := params.ProtocolVersion
	if version == wire.RevisionModern || !slices.Contains(wire.Revisions(), version) {
		version = wire.RevisionLegacy
	}
	return t.introduction(map[string]any{"protocolVersion": version, "serverInfo": t.info()})
}

// introduction adds what initialize and server/discover have in common.
func (t *toolSession) introduction(result map[string]any) (json.RawMessage, error) {
	result["capabilities"] = json.RawMessage(capabilities)
	if t.p.instructions != "" {
		result["instructions"] = t.p.instructions
	}
	return encode(result)
}

func (t *toolSession) info() map[string]any {
	info := map[string]any{"name": t.p.name, "version": t.p.version}
	if t.p.title != "" {
		info["title"] = t.p.title
	}
	return info
}

// list answers in one page.
func (t *toolSession) list(r *Request) (json.RawMessage, error) {
	if cursor := wire.Member(r.Params, "cursor"); !wire.IsNull(cursor) {
		return nil, InvalidParams("tools/list: unknown cursor")
	}
	result := map[string]any{}
	tools := make([]any, 0, len(t.p.tools))
	for _, tool := range t.p.tools {
		tools = append(tools, tool.descriptor())
	}
	result["tools"] = tools
	if r.env.MetaProtocolVersion() != nil {
		result["ttlMs"], result["cacheScope"] = 0, "private"
	}
	return encode(result)
}

func (t *toolSession) call(ctx context.Context, r *Request) (json.RawMessage, error) {
	var name string
	if err := json.Unmarshal(r.env.Name(), &name); err != nil {
		return nil, InvalidParams("tools/call: name is missing")
	}
	tool := t.p.toolNamed[name]
	if tool == nil {
		return nil, InvalidParams("unknown tool %q", clip(name))
	}
	if fault := t.p.refuseWrite(&tool.handler); fault != nil {
		return nil, fault
	}
	result, err := tool.invoke(ctx, r.env.Arguments())
	var e *wire.Error
	switch {
	case err == nil:
		return result, nil
	case ctx.Err() != nil, asError(err, &e):
		return nil, err
	}
	return (&Result{Content: []Content{Text(t.p.redact.text(err.Error()))}, IsError: true}).append(nil)
}

// listen acknowledges a subscription of which nothing can be honoured, and stays open until the client ends it.
func (t *toolSession) listen(ctx context.Context, r *Request) (json.RawMessage, error) {
	if n := wire.Member(r.Params, "notifications"); len(n) == 0 || n[0] != '{' {
		return nil, InvalidParams("subscriptions/listen: notifications is missing")
	}
	ack := map[string]any{"notifications": struct{}{}, "_meta": map[string]any{"io.modelcontextprotocol/subscriptionId": r.ID}}
	if err := t.s.NotifyWait(ctx, "notifications/subscriptions/acknowledged", ack); err != nil {
		return nil, err
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// complete adds to a result what 2026-07-28 requires in each.
func (t *toolSession) complete(result json.RawMessage) (json.RawMessage, error) {
	if last := len(result) - 1; last > 1 && result[0] == '{' && result[1] == '"' && !claims(result) {
		info, err := encode(t.info())
		if err != nil {
			return nil, err
		}
		result = append(result[:last:last], `,"resultType":"complete","_meta":{"`+metaServerInfo+`":`...)
		return append(append(result, info...), '}', '}'), nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(result, &members); err != nil {
		return nil, fmt.Errorf("result: %w", err)
	}
	var meta map[string]any
	if raw, ok := members["_meta"]; ok {
		if err := json.Unmarshal(raw, &meta); err != nil {
			return nil, fmt.Errorf("result: _meta: %w", err)
		}
	}
	if meta == nil {
		meta = map[string]any{}
	}
	meta[metaServerInfo] = t.info()
	raw, err := encode(meta)
	if err != nil {
		return nil, err
	}
	members["_meta"] = raw
	if _, ok := members["resultType"]; !ok {
		members["resultType"] = json.RawMessage(`"complete"`)
	}
	return encode(members)
}

// claims reports whether a result, a non-empty object, has a member that complete would add.
func claims(result json.RawMessage) (found bool) {
	wire.EachMember(result, func(name []byte, _ wire.Span) bool {
		found = string(name) == "_meta" || string(name) == "resultType"
		return !found
	})
	return found
}

// brokenMCP answers for an adapter that did not open.
type brokenMCP struct{ p *Plugin }

func (b brokenMCP) Serve(context.Context, *Request) (json.RawMessage, error) {
	return nil, b.p.fault(wire.CodeInternal, wire.ExecutedNo, "the MCP session of plugin %s did not open; its log says why", b.p.name)
}
func (b brokenMCP) Deliver(*wire.Envelope) {}
func (b brokenMCP) Close()                 {}

func asError(err error, e **wire.Error) bool { return errors.As(err, e) }
