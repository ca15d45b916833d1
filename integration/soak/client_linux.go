package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sox-host/sox-host/integration/internal/history"
)

// client owns the pipes of one host. Its methods are safe for concurrent use.
type client struct {
	r     *round
	rec   *history.Recorder
	write sync.Mutex
	stdin io.WriteCloser
	out   *os.File
	ended chan struct{} // closed when stdout has ended

	ids atomic.Int64

	gate sync.Mutex  // held by whoever lets the client not read
	cut  atomic.Bool // the last line need not be whole

	mu      sync.Mutex
	open    map[string]*pending
	codes   map[string]map[int]int // plugin → error code → answers
	bounds  []lateAnswer
	away    []span        // when the client or the host was kept from its work
	slowest time.Duration // of an answer
}

// span is a piece of a round's time.
type span struct{ from, to time.Duration }

// lateAnswer is an answer that took longer than its bound, if nobody kept it.
type lateAnswer struct {
	op   *history.Op
	took time.Duration
}

// pending is one request. Its fields are set before done is closed.
type pending struct {
	op      *history.Op
	bound   time.Duration
	done    chan struct{}
	result  json.RawMessage
	code    int
	version string
	pid     int

	read atomic.Int64 // when the host had read its withdrawal, nanoseconds of the round; 0 = not known
}

func (p *pending) ok() bool { return p.code == 0 && p.result != nil }

func newClient(r *round, stdin io.WriteCloser, out *os.File) *client {
	c := &client{r: r, rec: r.rec, stdin: stdin, out: out, ended: make(chan struct{}), open: map[string]*pending{}, codes: map[string]map[int]int{}}
	go c.read() // ends with the host's stdout
	return c
}

// id mints a raw id, of all the kinds that a client may use.
func (c *client) id() string {
	n := c.ids.Add(1)
	switch n % 7 {
	case 0:
		return strconv.FormatInt(9007199254740993+2*n, 10) // no float has these
	case 1:
		return fmt.Sprintf(`"s-%d"`, n)
	case 2:
		return fmt.Sprintf("%d.50", n)
	case 3:
		return fmt.Sprintf(`"a\"\\\n%d"`, n)
	case 4:
		return strconv.FormatInt(-n, 10)
	case 5:
		return fmt.Sprintf(`"%s%d"`, strings.Repeat("long", 50), n)
	}
	return strconv.FormatInt(n, 10)
}

// send writes a request.
func (c *client) send(plugin, nonce string, kind history.Kind, bound time.Duration, method string, params any) *pending {
	raw, err := json.Marshal(params)
	if err != nil {
		panic(err) // of this program
	}
	id := c.id()
	p := &pending{bound: bound, done: make(chan struct{})}
	if nonce == "" {
		nonce = fmt.Sprintf("r%d-%d", c.r.n, c.ids.Load())
	}
	c.mu.Lock()
	p.op = c.rec.Invoke(nonce, id, plugin, kind)
	c.open[id] = p
	c.mu.Unlock()
	line := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"method":%q`, id, method)
	if params != nil {
		line = fmt.Appendf(line, `,"params":%s`, raw)
	}
	c.line(append(line, '}'))
	return p
}

// line writes one line.
func (c *client) line(line []byte) {
	c.write.Lock()
	defer c.write.Unlock()
	_, _ = c.stdin.Write(append(line, '\n')) // a host that has ended is noticed by its stdout
}

// waitLimit is how much longer than its bound a request is waited for: its answer may be behind a client that was kept from reading. 30 s.
const waitLimit = 30 * time.Second

// wait returns false if the host ended first. An answer that does not come is a violation, and ends the round.
func (c *client) wait(p *pending) bool {
	select {
	case <-p.done:
		return true
	default:
	}
	timer := time.NewTimer(p.bound + waitLimit)
	defer timer.Stop()
	select {
	case <-p.done:
		return true
	case <-c.ended:
		return false
	case <-timer.C:
		c.r.fail("I1", p.op.Plugin, "%s with the id %s is not answered after %v", p.op.Nonce, p.op.ID, c.rec.Now()-p.op.Invoked)
		c.r.abort()
		<-c.ended
		return false
	}
}

// cancel withdraws a request, and asks something afterwards to learn when the host had read that.
func (c *client) cancel(p *pending) {
	c.rec.Cancel(p.op)
	c.line(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, p.op.ID))
}

// pong marks withdrawals as read: the host takes lines in their order.
func (c *client) pong(cancelled []*pending) {
	ping := c.send("", "", history.Read, pingBound, "ping", nil)
	if !c.wait(ping) {
		return
	}
	at := int64(c.rec.Now())
	for _, p := range cancelled {
		p.read.CompareAndSwap(0, at)
	}
}

// pingBound is how long a ping may take on a machine that does ten other things: it needs no plugin. 5 s.
const pingBound = 5 * time.Second

// pause keeps the client from reading.
func (c *client) pause(d time.Duration, done <-chan struct{}) {
	from := c.rec.Now()
	c.gate.Lock()
	sleep(d, done)
	c.gate.Unlock()
	c.kept(from)
}

// kept notes that nobody could expect answers since from.
func (c *client) kept(from time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.away = append(c.away, span{from, c.rec.Now()})
}

// sleep returns early when done is closed.
func sleep(d time.Duration, done <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-done:
	}
}

// read takes every line apart until the host's stdout ends.
func (c *client) read() {
	defer close(c.ended)
	lines := bufio.NewReaderSize(c.out, 256<<10)
	for {
		c.gate.Lock()
		//lint:ignore SA2001 whoever holds it keeps this client from reading
		c.gate.Unlock()
		line, err := lines.ReadBytes('\n')
		switch {
		case err == nil:
			c.take(bytes.TrimSuffix(line, []byte("\n")))
			continue
		case len(line) > 0 && !c.cut.Load():
			c.rec.BadLine(fmt.Errorf("the last line has no newline: %.200q", line))
		}
		if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrClosed) {
			c.r.world.events.add("client", "read: %v", err)
		}
		return
	}
}

// take handles one line.
func (c *client) take(line []byte) {
	m, err := history.CheckLine(line)
	if err != nil {
		c.rec.BadLine(err)
		return
	}
	switch {
	case m.Method == "notifications/tools/list_changed":
		c.rec.Notice()
		c.r.see(seenNotice)
		return
	case m.Method != "" && m.ID != nil:
		go c.line(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"this client serves nothing"}}`, m.ID))
		return
	case m.Method != "":
		return
	}
	if m.ID == nil {
		c.r.fail("I2", "", "an error without an id: %.200s", line)
		return
	}
	id := string(m.ID)
	c.mu.Lock()
	p := c.open[id]
	delete(c.open, id)
	c.mu.Unlock()
	a := decode(m)
	version := ""
	if a.outcome == history.OK {
		version = a.version
	}
	c.rec.Answer(id, a.outcome, version, a.detail)
	if p == nil {
		return // a second answer, or one that nobody asked for: the history knows
	}
	now := c.rec.Now()
	if read := p.read.Load(); read > 0 && now-time.Duration(read) > time.Second {
		c.r.fail("I1", p.op.Plugin, "%s was answered %v after the host had read its withdrawal", p.op.Nonce, now-time.Duration(read))
	}
	p.result, p.code, p.version, p.pid = m.Result, a.code, a.version, a.pid
	c.mu.Lock()
	took := now - p.op.Invoked
	if !p.op.Cancelled {
		c.slowest = max(c.slowest, took)
		if p.bound > 0 && took > p.bound {
			c.bounds = append(c.bounds, lateAnswer{p.op, took})
		}
	}
	if a.code != 0 {
		codes := c.codes[p.op.Plugin]
		if codes == nil {
			codes = map[int]int{}
			c.codes[p.op.Plugin] = codes
		}
		codes[a.code]++
	}
	c.mu.Unlock()
	close(p.done)
	switch {
	case a.outcome == history.Unknown && a.code == -32003:
		c.r.see(seenUnknown)
	case a.code == -32005:
		c.r.see(seenDeadline)
	case a.outcome == history.NotRun:
		c.r.see(seenNotRun)
	}
}

// answer is what an answer says.
type answer struct {
	outcome history.Outcome
	code    int
	detail  string
	version string
	pid     int
}

func decode(m history.Line) answer {
	if m.Error != nil {
		var e struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
			Data    struct {
				Executed string `json:"executed"`
			} `json:"data"`
		}
		_ = json.Unmarshal(m.Error, &e) // data may be anything
		a := answer{code: e.Code, outcome: history.Failed, detail: fmt.Sprintf("%d %s", e.Code, e.Message)}
		switch e.Data.Executed {
		case "no":
			a.outcome = history.NotRun
		case "unknown":
			a.outcome = history.Unknown
		}
		return a
	}
	var result struct {
		IsError    bool   `json:"isError"`
		Version    string `json:"version"`
		PID        int    `json:"pid"`
		Structured struct {
			Version string `json:"version"`
			PID     int    `json:"pid"`
		} `json:"structuredContent"`
	}
	_ = json.Unmarshal(m.Result, &result) // results of lists and pings have other members
	a := answer{outcome: history.OK, version: result.Version, pid: result.PID}
	if result.Structured.Version != "" {
		a.version, a.pid = result.Structured.Version, result.Structured.PID
	}
	if result.IsError {
		a.outcome, a.detail = history.Failed, fmt.Sprintf("isError: %.200s", m.Result)
	}
	return a
}

// settle waits until nothing is open, and returns the calls that were never answered.
func (c *client) settle(bound time.Duration) []*pending {
	deadline := time.After(bound)
	for {
		var waiting []*pending
		c.mu.Lock()
		for _, p := range c.open {
			if !p.op.Cancelled {
				waiting = append(waiting, p)
			}
		}
		c.mu.Unlock()
		if len(waiting) == 0 {
			return nil
		}
		select {
		case <-waiting[0].done:
		case <-c.ended:
			return waiting
		case <-deadline:
			return waiting
		}
	}
}

// forsake makes every open call one that need not be answered: its host was killed.
func (c *client) forsake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.open {
		c.rec.Cancel(p.op)
	}
}

// overlap is how much of a piece of time nobody could expect an answer in.
func (c *client) overlap(from, to time.Duration) time.Duration {
	var sum time.Duration
	for _, s := range c.away {
		if a, b := max(s.from, from), min(s.to, to); b > a {
			sum += b - a
		}
	}
	return sum
}
