package main

import (
	"context"
	"errors"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// errServerIsBack ends a relay whose first handshake failed because the server was away.
var errServerIsBack = errors.New("the server was away and can be reached now: start this program anew")

// expect waits for a server that was away when it was greeted, by q, and then ends the relay. A client that was refused
// does not ask again by itself; but what watches over this process, as sox-host does, starts it anew when it ends, and
// greets it. It does nothing while it waits already.
func (r *relay) expect(q *request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.arrived != nil {
		return
	}
	ctx, arrived := context.WithCancel(r.ctx)
	r.arrived = arrived
	// Ends with the server's arrival, noticed here or by the client, or with the relay.
	r.work.Go(func() {
		defer arrived()
		pause := backoff{first: firstPause, most: reconnectPause}
		for least := time.Duration(0); pause.wait(ctx, least); {
			f := r.knock(ctx, q)
			least = f.after
			if f.kind != away && f.kind != unknown && !r.isGreeting() {
				if ctx.Err() == nil {
					r.cancel(errServerIsBack)
				}
				return
			}
		}
	})
}

// isGreeting says that the client is greeting the server again by itself.
func (r *relay) isGreeting() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range r.open {
		if q.greets() {
			return true
		}
	}
	return false
}

// greets says that a request asks who the server is.
func (q *request) greets() bool { return q.method == methodInitialize || q.method == methodDiscover }

// welcome says that the server has answered the client.
func (r *relay) welcome() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.arrived != nil {
		r.arrived()
		r.arrived = nil
	}
}

// knock greets the server as q did, and leaves nothing behind. A server that answers gives a fault of the kind refused.
func (r *relay) knock(ctx context.Context, q *request) fault {
	var f *fault
	if q.method == methodInitialize {
		var s *session
		if s, _, f = r.handshake.greet(ctx, r, r.handshake.ownID(), q.params); s != nil {
			bye, cancel := bounded(ctx)
			r.link.end(bye, s)
			cancel()
			s.lose()
		}
	} else {
		step, cancel := bounded(ctx)
		defer cancel()
		var s *session
		if s, f = r.sessionFor(&request{ctx: step, modern: true}); f == nil {
			_, f = r.link.send(step, &exchange{session: s}, &jsonrpc.Request{ID: r.handshake.ownID(), Method: q.method, Params: q.params})
		}
	}
	if f == nil {
		return fault{kind: refused}
	}
	return *f
}
