package slot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sox-host/sox-host/host/internal/bridge"
	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/schema"
	"github.com/sox-host/sox-host/plugin/wire"
)

// Session is one client's conversation in one era, as every generation has to be told of it before its
// first request there. It does not change once it is known to a slot, but for its end.
type Session struct {
	ID           uint64
	Revision     string          // MCP revision; "" for plain JSON-RPC
	Init         json.RawMessage // legacy: the client's own params of initialize, replayed to every generation
	ClientInfo   json.RawMessage // may be nil
	Capabilities json.RawMessage // the client's; may be nil
	Context      json.RawMessage // client context; may be nil
	Peer         Peer

	ended       atomic.Bool // set by CloseSession: what comes later must not make it known again
	profileOnce sync.Once
	profile     Profile // set by profileOnce
}

// Peer receives what a plugin sends on its own within a session. The calls come from the connection's
// reading goroutine and must not block on a plugin.
type Peer interface {
	// PluginRequest passes a request of the plugin; reply may be kept and used once from any goroutine.
	PluginRequest(from Origin, env *wire.Envelope, reply Replier)
	// PluginNotification passes a notification other than progress.
	PluginNotification(from Origin, env *wire.Envelope)
}

// Origin names the generation that speaks.
type Origin struct {
	Plugin     string
	Version    string
	Generation uint64
	Session    *Session
}

// Replier answers one request of a plugin.
type Replier interface {
	// Answer sends the plugin a result or an error object, as raw JSON. A generation that has ended is
	// ignored.
	Answer(result, errObj []byte)
	// Progress passes on the params of the client's notifications/progress, before Answer. They name the
	// plugin's own token. A generation that has ended, or does not read, gets none.
	Progress(params []byte)
}

// Modern reports an era without a handshake.
func (s *Session) Modern() bool { return s.Revision >= wire.RevisionModern }

// Profile is what decides the lists a session is shown, besides the build: the cache key's part that
// belongs to the client.
type Profile struct {
	Revision string
	CapsHash string
}

// Profile returns the session's profile. It is computed once: every dispatched request asks for it.
func (s *Session) Profile() Profile {
	s.profileOnce.Do(func() { s.profile = s.newProfile() })
	return s.profile
}

func (s *Session) newProfile() Profile {
	if s.Revision == "" {
		return Profile{}
	}
	caps := s.Capabilities
	if caps == nil {
		caps = json.RawMessage("{}")
	}
	hash, err := schema.Hash(caps)
	if err != nil { // valid JSON that is not I-JSON, such as duplicate names: any stable key will do
		sum := sha256.Sum256(caps)
		hash = hex.EncodeToString(sum[:])
	}
	return Profile{Revision: s.Revision, CapsHash: hash}
}

// OtherEra returns a session for what the client said in this one, in the other era of MCP: a plugin that serves only
// that is spoken to by it. It has no number, context and peer yet.
func (s *Session) OtherEra() *Session {
	over := &Session{Revision: wire.RevisionModern, ClientInfo: s.ClientInfo, Capabilities: s.Capabilities}
	if s.Modern() {
		over.Revision, over.Init = wire.RevisionLegacy, bridge.Initialize(s.Capabilities, s.ClientInfo)
	}
	return over
}

// probeID is the number of sessions of our own, of which a generation has one at a time. Gateways count from 1.
const probeID = 1<<53 - 1

// probeSession is the session by which a plugin is asked for its lists when no client is there.
func probeSession() *Session {
	return &Session{
		ID:           probeID,
		Revision:     wire.RevisionLegacy,
		Init:         bridge.Initialize(nil, nil),
		Capabilities: json.RawMessage(`{}`),
	}
}

// modernMeta is the _meta of our own requests in a modern session (MCP 2026-07-28, required members).
func (s *Session) modernMeta() []byte {
	caps, info := s.Capabilities, s.ClientInfo
	if caps == nil {
		caps = json.RawMessage("{}")
	}
	meta := append([]byte(`{"io.modelcontextprotocol/protocolVersion":`), wire.AppendQuote(nil, s.Revision)...)
	meta = append(meta, `,"io.modelcontextprotocol/clientCapabilities":`...)
	meta = append(meta, caps...)
	if info != nil {
		meta = append(meta, `,"io.modelcontextprotocol/clientInfo":`...)
		meta = append(meta, info...)
	}
	return append(meta, '}')
}

// greeting is what a generation answered when a session was opened.
type greeting struct {
	capabilities json.RawMessage
	instructions string
	listen       *listening // modern; may be nil
}

// openSession tells the generation of a session: sox/session.open, then the handshake of its era. ctx
// bounds it. Errors are *wire.HandshakeError; the plugin may have the session all the same, see generation.halfOpen.
func (g *generation) openSession(ctx context.Context, s *Session) (greeting, error) {
	fail := g.handshakeError
	if _, err := g.conn.Call(ctx, rpc.Request{Method: wire.MethodSessionOpen, Params: sessionOpen(s)}); err != nil {
		return fail("session.open", err)
	}
	switch {
	case !g.serves(s): // nothing is asked of it in this session
		return greeting{}, nil
	case s.Modern():
		hello, err := g.discover(ctx, s)
		if err == nil {
			hello.listen = g.listen(s, hello.capabilities)
		}
		return hello, err
	}
	result, err := g.conn.Call(ctx, rpc.Request{Session: s.ID, Method: "initialize", Params: s.Init})
	if err != nil {
		return fail("initialize", err)
	}
	var hello struct {
		Capabilities json.RawMessage `json:"capabilities"`
		Instructions string          `json:"instructions"`
	}
	if err := json.Unmarshal(result, &hello); err != nil {
		return fail("initialize", err)
	}
	if err := g.conn.Notify(s.ID, "notifications/initialized", []byte("{}")); err != nil {
		return fail("initialized", err)
	}
	g.tell(s, hello.Capabilities)
	return greeting{capabilities: hello.Capabilities, instructions: hello.Instructions}, nil
}

// serves reports whether the plugin serves MCP in the session's era.
func (g *generation) serves(s *Session) bool {
	return s.Revision != "" && slices.ContainsFunc(g.ready.MCP, func(revision string) bool {
		return (revision >= wire.RevisionModern) == s.Modern()
	})
}

func (g *generation) handshakeError(stage string, err error) (greeting, error) {
	return greeting{}, &wire.HandshakeError{Plugin: g.slot.name, Version: g.build.Version.String(), Stage: stage, Err: err}
}

// sessionOpen is the params of sox/session.open.
func sessionOpen(s *Session) []byte {
	open := wire.SessionOpen{Session: s.ID, Client: s.ClientInfo, Context: s.Context}
	if s.Revision != "" {
		open.MCP = &s.Revision
	}
	params, err := json.Marshal(open)
	if err != nil { // the raw parts were cut out of valid JSON
		return []byte("{}")
	}
	return params
}

// unheard is a request whose answer nobody needs.
type unheard struct {
	session uint64
	method  string
	params  []byte
}

func (u *unheard) AppendRequest(dst []byte, id uint64) []byte {
	return wire.AppendRequest(dst, wire.Head{ID: id, Session: u.session}, u.method, u.params)
}

func (u *unheard) Retire(rpc.Reply) {}

// discover asks a modern plugin for its capabilities. A plugin without server/discover is taken to serve
// tools: the lists themselves tell the rest.
func (g *generation) discover(ctx context.Context, s *Session) (greeting, error) {
	fail := g.handshakeError
	params := append([]byte(`{"_meta":`), s.modernMeta()...)
	params = append(params, '}')
	result, err := g.conn.Call(ctx, rpc.Request{Session: s.ID, Method: "server/discover", Params: params})
	if e := (*wire.Error)(nil); errors.As(err, &e) && e.Code == wire.CodeMethodNotFound {
		return greeting{capabilities: json.RawMessage(`{"tools":{},"prompts":{},"resources":{}}`)}, nil
	}
	if err != nil {
		return fail("server/discover", err)
	}
	var hello struct {
		Capabilities json.RawMessage `json:"capabilities"`
		Instructions string          `json:"instructions"`
	}
	if err := json.Unmarshal(result, &hello); err != nil {
		return fail("server/discover", err)
	}
	return greeting{capabilities: hello.Capabilities, instructions: hello.Instructions}, nil
}
