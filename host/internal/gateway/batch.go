package gateway

import (
	"errors"
	"fmt"

	"github.com/sox-host/sox-host/plugin/wire"
)

// batchRevision is the only revision of MCP whose servers must accept batches.
const batchRevision = "2025-03-26"

const (
	// maxBatch bounds the envelopes of one batch: 1,024.
	maxBatch = 1024
	// maxBatches bounds the batches that wait for a part of their answers: 64.
	maxBatches = 64
)

// batch is a JSON array of envelopes whose answers go out together. Guarded by Session.mu.
type batch struct {
	out  []byte // the array so far, without its end
	left int    // answers that are due
	over bool   // sent
	ids  []string
}

// batch handles an array of envelopes. It reports false where there are none: then the line is ignored, as any
// that is no envelope.
func (s *Session) batch(line []byte) bool {
	if s.legacy == nil || s.legacy.up.Revision != batchRevision || !wire.ValidValue(line) {
		return false
	}
	n := 0
	wire.EachElement(line, func([]byte) bool { n++; return n <= maxBatch })
	if n == 0 || n > maxBatch {
		return false
	}
	b := &batch{out: []byte{'['}, left: 1} // so that it does not end before its last part has been looked at
	s.mu.Lock()
	full := s.batches >= maxBatches
	s.batches++
	s.mu.Unlock()
	envelopes := make([]*wire.Envelope, 0, n)
	wire.EachElement(line, func(raw []byte) bool {
		env := &wire.Envelope{}
		var e *wire.EnvelopeError
		switch err := wire.Scan(raw, env); {
		case err == nil:
			if env.Kind == wire.Request && !s.joinBatch(b, env.ID()) {
				refusal := duplicateID()
				s.write(func(dst []byte) []byte { return wire.AppendError(dst, env.ID(), refusal) })
				return true
			}
			if full && env.Kind == wire.Request {
				s.writeError(env.ID(), wire.NewError(wire.CodeBusy, fmt.Sprintf("%d batches are open already", maxBatches), wire.ErrorData{RetryAfterMS: 250}))
				return true
			}
			envelopes = append(envelopes, env)
		case errors.As(err, &e) && e.ID != nil:
			s.log.Warn("refused a part of a batch", "error", err)
			if s.joinBatch(b, e.ID) {
				s.writeError(e.ID, notAnEnvelope(e))
			}
		default:
			s.log.Warn("ignored a part of a batch", "error", err)
		}
		return true
	})
	for _, env := range envelopes {
		if string(env.Method()) == "initialize" && env.Kind == wire.Request {
			s.writeError(env.ID(), wire.NewError(wire.CodeInvalidRequest, "initialize must not be part of a batch", wire.ErrorData{}))
			continue
		}
		s.env = *env // so that what it dispatches is flushed with the rest of the line
		s.envelope(&s.env)
	}
	s.mu.Lock()
	b.left--
	out := s.completeLocked(b)
	s.mu.Unlock()
	s.sendBatch(out)
	return true
}

// joinBatch makes the answer to an id a part of b. It reports false for one that is a part of another open batch.
func (s *Session) joinBatch(b *batch, id []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if other := s.batchOf[string(id)]; other != nil && other != b {
		return false
	}
	if s.batchOf == nil {
		s.batchOf = make(map[string]*batch)
	}
	s.batchOf[string(id)] = b
	s.batching.Store(true)
	b.left++
	b.ids = append(b.ids, string(id))
	return true
}

// completeLocked takes a batch that is complete out of the table and returns its line, or nil.
func (s *Session) completeLocked(b *batch) []byte {
	if b.left > 0 || b.over {
		return nil
	}
	b.over = true
	s.batches--
	for _, id := range b.ids {
		if s.batchOf[id] == b {
			delete(s.batchOf, id)
		}
	}
	s.batching.Store(len(s.batchOf) > 0)
	if len(b.out) == 1 { // only notifications, or everything was cancelled: nothing is answered
		return nil
	}
	return append(b.out, ']')
}

func (s *Session) sendBatch(out []byte) {
	if out != nil {
		s.write(func(dst []byte) []byte { return append(dst, out...) })
	}
}

// gather adds an answer to the batch that its request came in. It reports false for any other request.
func (s *Session) gather(id []byte, build func(dst []byte) []byte) bool {
	s.mu.Lock()
	b := s.batchOf[string(id)]
	if b == nil {
		s.mu.Unlock()
		return false
	}
	before := len(b.out)
	if before > 1 {
		b.out = append(b.out, ',')
	}
	b.out = build(b.out)
	if s.gw.tooLong(len(b.out)) {
		if before > 1 {
			b.out = append(b.out[:before], ',')
		} else {
			b.out = b.out[:before]
		}
		b.out = wire.AppendError(b.out, id, wire.NewError(wire.CodeResponseTooLarge, "the answers of this batch are too long for one line; send fewer requests at once", wire.ErrorData{}))
	}
	b.left--
	out := s.completeLocked(b)
	s.mu.Unlock()
	s.sendBatch(out)
	return true
}

// unbatch takes a cancelled request out of its batch: it will not be answered.
func (s *Session) unbatch(id []byte) {
	if !s.batching.Load() {
		return
	}
	s.mu.Lock()
	b := s.batchOf[string(id)]
	var out []byte
	if b != nil {
		delete(s.batchOf, string(id))
		b.left--
		out = s.completeLocked(b)
	}
	s.mu.Unlock()
	s.sendBatch(out)
}
