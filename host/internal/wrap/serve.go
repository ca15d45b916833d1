package wrap

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

// pingWait is how long sox/health waits for the servers' answers to a ping: 250 ms. Small servers know no
// ping and say nothing; that they still run is enough then.
const pingWait = 250 * time.Millisecond

// serve handles what the host sends, on the goroutine that reads the connection.
func (b *Backend) serve(_ *rpc.Conn, env *wire.Envelope) {
	if id := env.Session(); id != 0 {
		if s := b.session(id); s != nil {
			s.fromHost(env)
		} else if env.Kind == wire.Request {
			b.refuse(env.ID(), wire.Errorf(wire.CodeInvalidRequest, "session %d is not open", id))
		}
		return
	}
	switch method := string(env.Method()); {
	case method == wire.MethodSessionOpen && env.Kind == wire.Request:
		b.open(env)
	case method == wire.MethodSessionClose:
		b.closeSession(env)
	case method == wire.MethodHealth && env.Kind == wire.Request:
		b.health(env)
	case method == wire.MethodShutdown:
		b.shutdown()
	case env.Kind == wire.Request:
		b.refuse(env.ID(), wire.Errorf(wire.CodeMethodNotFound, "a wrapped server serves MCP only, within a session; not %q", method))
	}
}

// refuse answers a request of the host with an error. A host that is gone needs no answer.
func (b *Backend) refuse(id []byte, e *wire.Error) { _ = b.conn.ReplyError(id, e) }

// errorf returns an error of this host about this build.
func (b *Backend) errorf(code wire.Code, executed wire.Executed, format string, args ...any) *wire.Error {
	return wire.NewError(code, fmt.Sprintf(format, args...), wire.ErrorData{
		Plugin: b.cfg.Spec.Plugin, Version: b.cfg.Spec.Version, Generation: b.cfg.Spec.Generation, Executed: executed,
	})
}

func (b *Backend) session(id uint64) *session {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sessions[id]
}

// open begins a session: it replaces one of the same number, and has a process unless it is plain JSON-RPC.
func (b *Backend) open(env *wire.Envelope) {
	var params wire.SessionOpen
	openID, ok := wire.ParseUint(env.ID())
	if err := json.Unmarshal(env.Params(), &params); err != nil || !ok || params.Session == 0 {
		b.refuse(env.ID(), wire.Errorf(wire.CodeInvalidParams, "params of sox/session.open name no session"))
		return
	}
	s := newSession(b, params, openID)
	b.mu.Lock()
	old := b.sessions[s.id]
	b.sessions[s.id] = s
	b.mu.Unlock()
	if old != nil {
		old.close()
	}
	if params.MCP == nil {
		s.plain()
		return
	}
	// Ends with the start of the process, or with ctx.
	if !b.begin(s.start) {
		s.failed(errEnding)
	}
}

// closeSession ends a session; its process is stopped in the background.
func (b *Backend) closeSession(env *wire.Envelope) {
	id, ok := wire.ParseUint(wire.Member(env.Params(), "session"))
	b.mu.Lock()
	s := b.sessions[id]
	delete(b.sessions, id)
	b.mu.Unlock()
	if ok && s != nil {
		s.close()
	}
}

// health answers whether every session's process still runs and reads: each is sent a ping. One that has
// ended takes the connection along, and so the answer. With Config.HealthTimeout, processes that owe an answer
// are held to it: where one says nothing for that long, so does this.
func (b *Backend) health(env *wire.Envelope) {
	answerID := bytes.Clone(env.ID())
	id, ok := wire.ParseUint(answerID)
	b.mu.Lock()
	sessions := make([]*session, 0, len(b.sessions))
	for _, s := range b.sessions {
		sessions = append(sessions, s)
	}
	b.mu.Unlock()
	wait, held := pingWait, false
	if owing := slices.DeleteFunc(slices.Clone(sessions), func(s *session) bool { return !s.owes() }); len(owing) > 0 && b.cfg.HealthTimeout > 0 {
		sessions, wait, held = owing, b.cfg.HealthTimeout, true
	}
	// As many as can come: whoever answers never waits, and nobody closes it.
	answers := make(chan struct{}, len(sessions))
	asked := 0
	for _, s := range sessions {
		if ok && s.ping(id, func() { answers <- struct{}{} }) {
			asked++
		}
	}
	// Ends with the last answer or after wait.
	begun := b.begin(func() {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		for ; asked > 0; asked-- {
			select {
			case <-answers:
				continue
			case <-timer.C:
			case <-b.ctx.Done():
				return
			}
			for _, s := range sessions {
				s.unask(id)
			}
			if held {
				return
			}
			break
		}
		_ = b.conn.Reply(answerID, []byte(`{"ok":true}`)) // the host may be gone
	})
	if !begun {
		b.refuse(answerID, wire.Errorf(wire.CodeShuttingDown, "%v", errEnding))
	}
}
