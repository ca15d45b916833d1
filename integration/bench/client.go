//go:build linux

package main

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// client is the one client that every target gets: lines over a pair of pipes, blocking. It writes each request by
// itself, as every client does that is not a benchmark, and reads what is there. Not safe for concurrent use.
type client struct {
	p          *process
	nextID     uint64
	buf        []byte
	start, end int
}

func newClient(p *process) *client { return &client{p: p, buf: make([]byte, 64<<10)} }

// message is a request around its id.
type message struct{ head, tail []byte }

func (m message) append(dst []byte, id uint64) []byte {
	dst = append(dst, m.head...)
	dst = strconv.AppendUint(dst, id, 10)
	return append(append(dst, m.tail...), '\n')
}

// inlineBytes is how much may be under way when one goroutine both writes and reads: less than a pipe of 64 KiB
// holds, or both ends could wait for each other.
const inlineBytes = 48 << 10

// record is what is kept of each answer.
type record struct {
	took []time.Duration // from its request on
	at   []time.Duration // since the exchange began, in order
}

// exchange makes n requests, at most inFlight open at a time, and records the answers.
func (c *client) exchange(m message, n, inFlight int, rec *record) (time.Duration, error) {
	inFlight = min(inFlight, n)
	sent := make([]time.Time, n)
	base := c.nextID + 1
	c.nextID += uint64(n)
	begun := time.Now()
	next := 0 // index of the next request to write
	var more func(count int) error
	finish := func() error { return nil }
	if size := len(m.append(nil, base)); size*inFlight <= inlineBytes {
		var out []byte
		more = func(count int) error {
			for ; count > 0 && next < n; count-- {
				sent[next] = time.Now()
				out = m.append(out[:0], base+uint64(next))
				next++
				if err := writeAll(c.p.in, out); err != nil {
					return err
				}
			}
			return nil
		}
	} else {
		more, finish = c.writer(m, sent, base)
	}
	if err := more(inFlight); err != nil {
		return 0, err
	}
	for done := 0; done < n; {
		lines := 0
		line, err := c.line(true)
		for ; err == nil && line != nil; line, err = c.line(false) {
			id, err := answered(line)
			if err != nil {
				return 0, err
			}
			if id < base || id >= base+uint64(n) {
				return 0, fmt.Errorf("answer to %d, which was not asked", id)
			}
			now := time.Now()
			rec.took = append(rec.took, now.Sub(sent[id-base]))
			rec.at = append(rec.at, now.Sub(begun))
			lines++
		}
		if err != nil {
			return 0, err
		}
		done += lines
		if err := more(lines); err != nil {
			return 0, err
		}
	}
	elapsed := time.Since(begun)
	return elapsed, finish()
}

// writer writes from a goroutine of its own, which ends by finish.
func (c *client) writer(m message, sent []time.Time, base uint64) (more func(int) error, finish func() error) {
	permits := make(chan int, len(sent)+1) // never full, so that the reader never waits for the writer
	ended := make(chan error, 1)
	go func() {
		var out []byte
		next := 0
		for count := range permits {
			for ; count > 0 && next < len(sent); count-- {
				sent[next] = time.Now()
				out = m.append(out[:0], base+uint64(next))
				next++
				if err := writeAll(c.p.in, out); err != nil {
					ended <- err
					return
				}
			}
		}
		ended <- nil
	}()
	return func(count int) error { permits <- count; return nil }, func() error { close(permits); return <-ended }
}

// call makes one request and returns its answer, which is valid until the next call.
func (c *client) call(method, params string) ([]byte, error) {
	c.nextID++
	out := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", c.nextID, method, params)
	if err := writeAll(c.p.in, out); err != nil {
		return nil, err
	}
	for {
		line, err := c.line(true)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", method, err)
		}
		if id, err := answered(line); err != nil || id == c.nextID {
			return line, err
		}
	}
}

func (c *client) notify(method string) error {
	return writeAll(c.p.in, fmt.Appendf(nil, `{"jsonrpc":"2.0","method":%q}`+"\n", method))
}

// line returns the next line. Without wait it returns nil when none is whole.
func (c *client) line(wait bool) ([]byte, error) {
	searched := 0
	for {
		if i := bytes.IndexByte(c.buf[c.start+searched:c.end], '\n'); i >= 0 {
			line := c.buf[c.start : c.start+searched+i]
			c.start += searched + i + 1
			if !isAnswer(line) { // a notification
				searched = 0
				continue
			}
			return line, nil
		}
		if !wait {
			return nil, nil
		}
		searched = c.end - c.start
		if c.start == c.end {
			c.start, c.end, searched = 0, 0, 0
		}
		if c.end == len(c.buf) {
			next := c.buf
			if c.start < len(c.buf)/2 {
				next = make([]byte, 2*len(c.buf))
			}
			c.end = copy(next, c.buf[c.start:c.end])
			c.buf, c.start = next, 0
		}
		n, err := unix.Read(c.p.out, c.buf[c.end:])
		switch {
		case err == unix.EINTR:
		case err != nil:
			return nil, err
		case n == 0:
			return nil, io.ErrUnexpectedEOF
		default:
			c.end += n
		}
	}
}

// edge is how much of an envelope's beginning, and of its end, is looked at for its id.
const edge = 120

// isAnswer tells an answer from what a server says unasked.
func isAnswer(envelope []byte) bool {
	return !bytes.Contains(envelope[:min(len(envelope), 40)], []byte(`"method"`))
}

// answerID reads the id of an answer; ok is false when there is none where programs write it: most first, those on the
// TypeScript SDK last.
func answerID(envelope []byte) (id uint64, ok bool) {
	key := []byte(`"id":`)
	where := envelope[:min(len(envelope), edge)]
	at := bytes.Index(where, key)
	if at < 0 {
		where = envelope[max(len(envelope)-edge, 0):]
		at = bytes.LastIndex(where, key)
	}
	if at < 0 {
		return 0, false
	}
	for _, ch := range where[at+len(key):] {
		if ch < '0' || ch > '9' {
			break
		}
		id = id*10 + uint64(ch-'0')
	}
	return id, true
}

// hasResult tells an answer that succeeded from an error.
func hasResult(envelope []byte) bool {
	return bytes.Contains(envelope[:min(len(envelope), edge)], []byte(`"result"`))
}

// answered reads the id of an answer, and makes an error of a failed one.
func answered(envelope []byte) (uint64, error) {
	id, ok := answerID(envelope)
	if !ok || !hasResult(envelope) {
		return 0, fmt.Errorf("not an answer: %.300s", envelope)
	}
	return id, nil
}

func writeAll(fd int, p []byte) error {
	for len(p) > 0 {
		n, err := unix.Write(fd, p)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return err
		default:
			p = p[n:]
		}
	}
	return nil
}
