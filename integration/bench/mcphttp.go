//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// mcpHTTP is a client of an MCP server that listens on localhost: streamable HTTP, or the older pair of a stream of
// events and posts. Safe for concurrent use after open.
type mcpHTTP struct {
	url     string
	http    *http.Client
	session string // Mcp-Session-Id, "" if the server gave none
	nextID  atomic.Uint64

	// Of the older transport alone; see listen.
	posts   string
	mu      sync.Mutex
	waiting map[uint64]chan []byte // capacity 1; the reader of events fills each once, and closes all at its end
	close   context.CancelFunc
}

// newMCPHTTP knows where to ask, and asks nothing yet.
func newMCPHTTP(url string) *mcpHTTP {
	return &mcpHTTP{url: url, posts: url, http: keptConnections(), close: func() {}}
}

// open makes the MCP handshake and waits for nothing more.
func (c *mcpHTTP) open() error {
	if _, err := c.call("initialize", initialize); err != nil {
		return err
	}
	resp, err := c.post([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
	if err != nil {
		return err
	}
	return discard(resp)
}

// call makes one request by its method.
func (c *mcpHTTP) call(method, params string) ([]byte, error) {
	return c.ask(message{[]byte(`{"jsonrpc":"2.0","id":`), fmt.Appendf(nil, `,"method":%q,"params":%s}`, method, params)})
}

// once is one request of a measurement.
func (c *mcpHTTP) once(m message) error {
	_, err := c.ask(m)
	return err
}

// ask makes one request and returns its answer.
func (c *mcpHTTP) ask(m message) ([]byte, error) {
	id := c.nextID.Add(1)
	arrives, err := c.await(id)
	if err != nil {
		return nil, err
	}
	resp, err := c.post(m.append(nil, id))
	if err != nil {
		return nil, err
	}
	if arrives != nil {
		if err := discard(resp); err != nil {
			return nil, err
		}
		timer := time.NewTimer(answerTime)
		defer timer.Stop()
		select {
		case answer, ok := <-arrives:
			if !ok {
				return nil, errors.New("the stream of events has ended")
			}
			return answer, nil
		case <-timer.C:
			return nil, fmt.Errorf("no answer within %v", answerTime)
		}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if s := resp.Header.Get("Mcp-Session-Id"); s != "" && c.session == "" {
		c.session = s // by initialize, before there is any concurrent use
	}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		return answerAmong(body, id)
	}
	got, err := answered(body)
	if err == nil && got != id {
		err = fmt.Errorf("answer to %d in place of %d", got, id)
	}
	return body, err
}

// answerAmong finds the answer to a request in the events of its response.
func answerAmong(body []byte, id uint64) ([]byte, error) {
	for line := range bytes.Lines(body) {
		data, ok := bytes.CutPrefix(bytes.TrimRight(line, "\r\n"), []byte("data:"))
		if !ok || len(data) < 3 {
			continue
		}
		if data = bytes.TrimPrefix(data, []byte(" ")); isAnswer(data) {
			got, err := answered(data)
			if err != nil || got == id {
				return data, err
			}
		}
	}
	return nil, fmt.Errorf("no answer to %d among the events: %.300s", id, body)
}

// post sends one envelope. The caller reads the body to its end and closes it, so that the connection is kept.
func (c *mcpHTTP) post(body []byte) (*http.Response, error) {
	r, err := http.NewRequest(http.MethodPost, c.posts, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if c.session != "" {
		r.Header.Set("Mcp-Session-Id", c.session)
		r.Header.Set("Mcp-Protocol-Version", "2025-06-18")
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 300)) // only for the error
		resp.Body.Close()
		return nil, fmt.Errorf("http: %s: %s", resp.Status, bytes.TrimSpace(text))
	}
	return resp, nil
}

// discard reads what nobody needs.
func discard(resp *http.Response) error {
	defer resp.Body.Close()
	_, err := io.Copy(io.Discard, resp.Body)
	return err
}

// listen opens the stream of events of the older transport: its first event names where to post, and answers come by
// it. The stream ends by close.
func (c *mcpHTTP) listen() error {
	c.close() // an earlier one, after which something failed
	ctx, cancel := context.WithCancel(context.Background())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url, nil)
	if err != nil {
		cancel()
		return err
	}
	r.Header.Set("Accept", "text/event-stream")
	resp, err := (&http.Client{}).Do(r) // without the limit of an answer's time
	if err != nil {
		cancel()
		return err
	}
	if resp.StatusCode != http.StatusOK {
		cancel()
		return errors.Join(fmt.Errorf("http: %s", resp.Status), resp.Body.Close())
	}
	c.close = cancel
	events := bufio.NewReaderSize(resp.Body, 1<<20)
	base, err := url.Parse(c.url)
	for err == nil {
		var data []byte
		if data, err = nextData(events); err == nil {
			var where *url.URL
			if where, err = base.Parse(string(data)); err == nil {
				c.posts = where.String()
				break
			}
		}
	}
	if err != nil {
		cancel()
		return fmt.Errorf("no address to post to: %w", err)
	}
	c.waiting = make(map[uint64]chan []byte)
	go c.deliver(events, resp.Body) // ends with the stream
	return nil
}

// await makes room for an answer that comes by the stream of events; nil when the response of the post has it.
func (c *mcpHTTP) await(id uint64) (<-chan []byte, error) {
	if c.posts == c.url {
		return nil, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting == nil {
		return nil, errors.New("the stream of events has ended")
	}
	arrives := make(chan []byte, 1)
	c.waiting[id] = arrives
	return arrives, nil
}

// deliver hands answers to those who wait for them.
func (c *mcpHTTP) deliver(events *bufio.Reader, body io.Closer) {
	defer body.Close()
	for {
		data, err := nextData(events)
		if err != nil {
			break
		}
		if !isAnswer(data) {
			continue
		}
		id, err := answered(data)
		if err != nil {
			break
		}
		c.mu.Lock()
		arrives := c.waiting[id]
		delete(c.waiting, id)
		c.mu.Unlock()
		if arrives != nil {
			arrives <- data
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, arrives := range c.waiting {
		close(arrives)
	}
	c.waiting = nil
}

// nextData returns the data of the next event that has any, in one line as every MCP server sends it.
func nextData(events *bufio.Reader) ([]byte, error) {
	for {
		line, err := events.ReadBytes('\n')
		if err != nil {
			return nil, err
		}
		if data, ok := bytes.CutPrefix(bytes.TrimRight(line, "\r\n"), []byte("data:")); ok {
			return bytes.TrimPrefix(data, []byte(" ")), nil
		}
	}
}
