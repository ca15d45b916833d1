//go:build linux

package main

import (
	"fmt"
	"sync"
	"time"
)

// steady is a client that sends on time whatever is still open, as several users of one host would: calls that wait
// for a slow answer hold up no others, so that each slow moment is met by as many calls as come then. Times begin when
// a call is written. Safe for concurrent use.
type steady struct {
	c *client // its reader is the goroutine of newSteady; nobody else uses it

	writing sync.Mutex // held while a call is written, which may wait for the host to read
	out     []byte     // guarded by writing

	mu   sync.Mutex // guards the rest; the reader never waits for a write
	next uint64
	open map[uint64]func(answer []byte) // by id; called by the reader, and with nil when the host has gone
	gone error
}

// newSteady takes over a client, whose reads end with the host.
func newSteady(c *client) *steady {
	s := &steady{c: c, next: c.nextID, open: make(map[uint64]func([]byte))}
	go s.read() // ends with the host's stdout
	return s
}

func (s *steady) read() {
	for {
		line, err := s.c.line(true)
		if err != nil {
			s.end(fmt.Errorf("the host has gone: %w", err))
			return
		}
		id, _ := answerID(line)
		s.mu.Lock()
		done := s.open[id]
		delete(s.open, id)
		s.mu.Unlock()
		if done != nil {
			done(line)
		}
	}
}

// end tells everybody that no answer will come.
func (s *steady) end(err error) {
	s.mu.Lock()
	open := s.open
	s.open, s.gone = nil, err
	s.mu.Unlock()
	for _, done := range open {
		done(nil)
	}
}

// send writes one call. done gets its answer, which is valid during the call, unless there is an error here.
func (s *steady) send(m message, done func(answer []byte)) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	if s.gone != nil {
		s.mu.Unlock()
		return s.gone
	}
	s.next++
	s.open[s.next] = done
	s.out = m.append(s.out[:0], s.next)
	s.mu.Unlock()
	_ = writeAll(s.c.p.in, s.out) // a host that does not read any more does not write either: the reader reports it
	return nil
}

// call makes one call, and reports whether it succeeded.
func (s *steady) call(method, params string) (answer string, ok bool, err error) {
	m := message{[]byte(`{"jsonrpc":"2.0","id":`), fmt.Appendf(nil, `,"method":%q,"params":%s}`, method, params)}
	came := make(chan struct{})
	err = s.send(m, func(b []byte) {
		answer, ok = string(b), hasResult(b)
		close(came)
	})
	if err != nil {
		return "", false, err
	}
	timer := time.NewTimer(answerTime)
	defer timer.Stop()
	select {
	case <-came:
		return answer, ok, nil
	case <-timer.C:
		return "", false, fmt.Errorf("%s: no answer within %v", method, answerTime)
	}
}

// stream is one kind of call of a steady load, and how long its calls took.
type stream struct {
	name string
	m    message

	mu     sync.Mutex
	took   []time.Duration
	failed string // an answer that is none
}

// load sends so many calls a second for d, of each stream in turn, and waits for all answers.
func (s *steady) load(streams []*stream, rate int, d time.Duration) error {
	var open sync.WaitGroup
	pause := time.Second / time.Duration(rate)
	begun := time.Now()
	for i := 0; time.Duration(i)*pause < d; i++ {
		time.Sleep(time.Until(begun.Add(time.Duration(i) * pause)))
		st := streams[i%len(streams)]
		open.Add(1)
		sent := time.Now()
		err := s.send(st.m, func(answer []byte) {
			st.add(answer, time.Since(sent))
			open.Done()
		})
		if err != nil {
			return err
		}
	}
	answered := make(chan struct{})
	go func() { open.Wait(); close(answered) }() // ends with the last answer, or with the host
	timer := time.NewTimer(answerTime)
	defer timer.Stop()
	select {
	case <-answered:
	case <-timer.C:
		return fmt.Errorf("calls have no answer within %v", answerTime)
	}
	for _, st := range streams {
		if why := st.failure(); why != "" {
			return fmt.Errorf("a call of %s failed: %s", st.name, why)
		}
	}
	return nil
}

// add records one answer.
func (st *stream) add(answer []byte, took time.Duration) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if hasResult(answer) {
		st.took = append(st.took, took)
		return
	}
	if st.failed = string(answer[:min(len(answer), 200)]); answer == nil {
		st.failed = "the host has gone"
	}
}

func (st *stream) failure() string {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.failed
}
