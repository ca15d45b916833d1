package main

import (
	"context"
	"reflect"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// attempts decides whether a request is sent once more. For one goroutine.
type attempts struct {
	relay    *relay
	harmless bool // may be repeated after an attempt that may have been executed
	hasty    bool // asks who is there: that nobody is, is an answer

	pause    backoff
	until    time.Time // set by the first fault
	repeats  int       // after an attempt that may have been executed
	missed   bool      // the server could not be reached
	greeted  int       // after the session was gone
	renewed  bool      // with new headers
	relisted bool      // with what the tools' list says now
}

// maxGreeted is how often a request may find its session gone: 3 times. Then the server keeps none.
const maxGreeted = 3

// again says whether to try once more, and waits before it does.
func (t *attempts) again(ctx context.Context, s *session, f *fault) bool {
	if t.until.IsZero() {
		t.until = time.Now().Add(giveUp)
		t.pause = backoff{first: firstPause, most: requestPause}
	}
	switch f.kind {
	case lost:
		if f.doubtful && t.relay.isKnown(ctx, s) {
			f.kind = refused
			return false
		}
		if s != nil {
			s.lose()
		}
		t.greeted++
		if t.greeted <= maxGreeted {
			return true
		}
		f.kind = refused
		return false
	case unknown:
		t.repeats++
		if !t.harmless || t.repeats > 1 {
			return false
		}
	case refused:
		if t.renewed || !t.relay.renewHeaders(f) {
			return false
		}
		t.renewed = true
		return true
	case away:
		t.missed = true
		if t.hasty {
			return false
		}
	default:
		return false
	}
	if time.Now().Add(f.after).After(t.until) {
		return false
	}
	return t.pause.wait(ctx, f.after)
}

// isKnown asks the server whether it knows a session.
func (r *relay) isKnown(ctx context.Context, s *session) bool {
	ctx, cancel := bounded(ctx)
	defer cancel()
	_, f := r.link.send(ctx, &exchange{session: s}, &jsonrpc.Request{ID: r.handshake.ownID(), Method: "ping"})
	return f == nil || f.kind != lost
}

// renewHeaders reads the headers again after the server has refused them. It reports whether they have changed.
func (r *relay) renewHeaders(f *fault) bool {
	if !f.unauthorized || r.config.file == "" {
		return false
	}
	headers, err := r.config.headers()
	if err != nil {
		r.log.Print(err)
		return false
	}
	old := r.courier.secrets.Swap(&headers)
	return !reflect.DeepEqual(*old, headers)
}
