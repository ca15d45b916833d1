package gateway

import (
	"errors"
	"sync"

	"github.com/sox-host/sox-host/plugin/wire"
)

const (
	// maxBatch bounds the envelopes of one batch: 1,024.
	maxBatch = 1024
	// maxBatches bounds the batches that wait for a part of their answers: 64.
	maxBatches = 64
)

// batch is a JSON array of envelopes whose answers go out together. As long as one is due, all ids of the batch are
// in use: the client has seen none of the answers.
type batch struct {
	due map[string]int // answers that are due, by raw id; an id may stand in a batch twice. Guarded by Session.mu

	mu   sync.Mutex // never held together with another lock
	out  []byte     // the array so far, without its end; guarded by mu
	left int        // answers that are due; guarded by mu
}

// batch handles an array of envelopes. It reports false where there are none: then the line is ignored, as any
// that is no envelope.
func (s *Session) batch(line []byte) bool {
	if s.legacy == nil || s.legacy.up.Revision != wire.RevisionBatches || !wire.ValidValue(line) {
		return false
	}
	n := 0
	wire.EachElement(line, func([]byte) bool { n++; return n <= maxBatch })
	if n == 0 || n > maxBatch {
		return false
	}
	// left is 1, so that it does not end before its last part has been looked at.
	b := &batch{due: make(map[string]int), out: []byte{'['}, left: 1}
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
				s.refuseLine(env.ID(), duplicateID())
				return true
			}
			if full && env.Kind == wire.Request {
				s.refuse(env.ID(), wire.CodeBusy, wire.ErrorData{RetryAfterMS: 250},
					"%d batches are open already", maxBatches)
				return true
			}
			envelopes = append(envelopes, env)
		case errors.As(err, &e) && e.ID != nil:
			s.log.Warn("refused a part of a batch", "error", err)
			s.odd(oddLine, e.Reason)
			if s.joinBatch(b, e.ID) {
				s.writeError(e.ID, notAnEnvelope(e))
			}
		default:
			s.log.Warn("ignored a part of a batch", "error", err)
			s.odd(oddLine, "a part of an array")
		}
		return true
	})
	s.handling = b
	for _, env := range envelopes {
		if string(env.Method()) == "initialize" && env.Kind == wire.Request {
			s.refuse(env.ID(), wire.CodeInvalidRequest, wire.ErrorData{},
				"initialize must not be part of a batch")
			continue
		}
		s.env = *env // so that what it dispatches is flushed with the rest of the line
		s.envelope(&s.env)
	}
	s.handling = nil
	s.settleBatch(b)
	return true
}

// joinBatch makes the answer to an id a part of b, before b's first request is handled. It reports false for an id
// that is in use by another request or batch.
func (s *Session) joinBatch(b *batch, id []byte) bool {
	s.mu.Lock()
	free := s.batchOf[string(id)] == b || s.batchOf[string(id)] == nil && !s.openLocked(id)
	if free {
		if s.batchOf == nil {
			s.batchOf = make(map[string]*batch)
		}
		s.batchOf[string(id)] = b
		s.batching.Store(true)
		b.due[string(id)]++
	}
	s.mu.Unlock()
	if free {
		b.mu.Lock()
		b.left++
		b.mu.Unlock()
	}
	return free
}

// dueIn returns the batch that waits for an answer to an id, nil for none, and takes that answer as given.
func (s *Session) dueIn(id []byte) *batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.batchOf[string(id)]
	if b == nil || b.due[string(id)] == 0 {
		return nil
	}
	b.due[string(id)]--
	return b
}

// collect adds an answer to the batch that its request came in. It reports false for any other request.
func (s *Session) collect(id []byte, build func(dst []byte) []byte) bool {
	b := s.dueIn(id)
	if b == nil {
		return false
	}
	b.mu.Lock()
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
		const text = "the answers of this batch are too long for one line; send fewer requests at once"
		b.out = wire.AppendError(b.out, id, wire.NewError(wire.CodeResponseTooLarge, text, wire.ErrorData{}))
	}
	b.mu.Unlock()
	s.settleBatch(b)
	return true
}

// unbatch takes a cancelled request out of its batch: it will not be answered.
func (s *Session) unbatch(id []byte) {
	if !s.batching.Load() {
		return
	}
	if b := s.dueIn(id); b != nil {
		s.settleBatch(b)
	}
}

// settleBatch counts one answer that is not due any more, and sends the batch after the last.
func (s *Session) settleBatch(b *batch) {
	b.mu.Lock()
	b.left--
	left, out := b.left, b.out
	b.mu.Unlock()
	if left > 0 {
		return
	}
	s.mu.Lock()
	s.batches--
	for id := range b.due {
		delete(s.batchOf, id)
	}
	s.batching.Store(len(s.batchOf) > 0)
	s.mu.Unlock()
	if len(out) > 1 { // else only notifications, or everything was cancelled: nothing is answered
		s.write(func(dst []byte) []byte { return append(append(dst, out...), ']') })
	}
}
