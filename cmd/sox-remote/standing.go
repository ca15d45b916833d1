package main

import (
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// The SDK opens the standing stream of a session only for a Client of its own, and ours is a relay. But it resumes the
// answer to any request: so the relay sends a request that is never written to the network and whose answer, made here,
// is the beginning of a stream that broke off. Resuming it is the GET that opens the standing stream.
const (
	standingEvent  = "sox-remote-standing"
	standingMethod = "sox/standing"
)

func standingOpener(req *http.Request) *http.Response {
	return &http.Response{
		StatusCode: http.StatusOK, Status: "200 OK", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: http.Header{"Content-Type": {"text/event-stream"}},
		Body:   io.NopCloser(strings.NewReader("retry: 1\nid: " + standingEvent + "\n\n")),
	}
}

// attend keeps the standing stream open, on which the server says what belongs to no request. A server need not have
// one, and may end it whenever it likes.
func (l *httpLink) attend(s *session) {
	pause := backoff{first: firstPause, most: reconnectPause}
	for missed := false; ; {
		x := &exchange{session: s, standing: true}
		x.opened = func() {
			if missed {
				l.relay.tellChanged()
			}
		}
		begun := time.Now()
		_, f := l.send(s.ctx, x, &jsonrpc.Request{ID: stringID(standingMethod), Method: standingMethod})
		if s.isOver() {
			return
		}
		switch status := x.statusCode(); {
		case status == http.StatusNotFound && s.id != "":
			s.lose()
			l.relay.revive(s)
			return
		case status >= 400 && status < 500 && f.kind != away: // it has none
			return
		case status >= 200 && status < 300: // it was open
			pause.reset(begun)
			missed = false
		default: // what the server says until it is open again is not heard
			missed = true
		}
		if !pause.wait(s.ctx, 0) {
			return
		}
	}
}
