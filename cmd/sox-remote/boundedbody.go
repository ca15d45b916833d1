package main

import (
	"bytes"
	"fmt"
	"io"
	"sync"
)

// tooLargeError ends a body.
type tooLargeError struct{ limit int }

func (e *tooLargeError) Error() string {
	return fmt.Sprintf("an answer of more than %d bytes", e.limit)
}

// boundedBody ends a body with an error once an answer, or one event of a stream, is over the limit.
type boundedBody struct {
	io.ReadCloser
	x      *exchange
	limit  int
	events bool
	seen   int // bytes since the last event
	line   int // bytes of the present line, without a carriage return
	once   sync.Once
	closed chan struct{}
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.count(p[:n])
	if b.seen > b.limit {
		b.x.mu.Lock()
		b.x.tooLarge = true
		b.x.mu.Unlock()
		return 0, &tooLargeError{b.limit}
	}
	return n, err
}

// count adds what was read. A blank line ends an event.
func (b *boundedBody) count(p []byte) {
	for b.events {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			break
		}
		blank := b.line == 0 && (i == 0 || i == 1 && p[0] == '\r')
		b.seen, b.line, p = b.seen+i+1, 0, p[i+1:]
		if blank {
			b.seen = 0
		} else if b.seen > b.limit {
			return
		}
	}
	b.seen += len(p)
	if len(p) > 1 || len(p) == 1 && p[0] != '\r' {
		b.line += len(p)
	}
}

func (b *boundedBody) Close() error {
	err := b.ReadCloser.Close()
	b.once.Do(func() { close(b.closed) })
	return err
}
