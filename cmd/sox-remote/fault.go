package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/sox-host/sox-host/plugin/wire"
)

// answer is what the server answered: a raw result, or a raw error object.
type answer struct{ result, errObj json.RawMessage }

// faultKind says what may be done after an attempt without an answer.
type faultKind int

const (
	away      faultKind = iota // the server cannot have it: try again in a while
	lost                       // the session is gone, and the server refused it for that: greet the server, try again
	refused                    // the server does not take it, and never will
	unknown                    // the server may have run it
	oversized                  // it was answered, by more than the limit
	cancelled                  // nobody waits any more
)

// fault is an attempt without an answer. why is what comes after "the server at URL …".
type fault struct {
	kind  faultKind
	why   string
	after time.Duration // the server asks to be left alone for this long; 0 = it did not say

	unauthorized bool // refused for want of the right headers
	malformed    bool // refused for what is in the request
	doubtful     bool // lost, or refused for what is in the request: the status is used for both
}

// maxRetryAfter is the longest that a server's Retry-After is heeded: longer than anybody waits here.
const maxRetryAfter = time.Hour

// judge says what became of an attempt, from what the courier noted and the SDK's error, if any. id is the request's.
func (x *exchange) judge(ctx context.Context, id jsonrpc.ID, err error) (answer, *fault) {
	x.mu.Lock()
	defer x.mu.Unlock()
	var stray *strayError
	switch {
	case ctx.Err() != nil:
		return answer{}, ended(ctx)
	case errors.As(err, &stray):
		return answer{}, &fault{kind: refused, why: "cannot be used: " + stray.why}
	case x.tooLarge:
		return answer{}, &fault{kind: oversized, why: "answered with more than fits"}
	case x.status == 0:
		return answer{}, x.unanswered(err)
	case x.status < 200 || x.status > 299:
		if a, ok := errorOf(x.body, id); ok {
			return a, nil
		}
		return answer{}, x.failed(err)
	}
	return answer{}, &fault{kind: unknown, why: "took the request and did not answer it: " + bare(err)}
}

// errSlow ends a step that nobody but the relay bounds.
var errSlow = errors.New("no answer in time")

// bounded returns a context for such a step: handshakeTimeout.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, handshakeTimeout, errSlow)
}

// ended is an attempt that was not waited for any longer.
func ended(ctx context.Context) *fault {
	if errors.Is(context.Cause(ctx), errSlow) {
		return &fault{kind: unknown, why: fmt.Sprintf("did not answer within %v", handshakeTimeout)}
	}
	return &fault{kind: cancelled, why: "was not waited for"}
}

// unanswered is an attempt for which no HTTP response came.
func (x *exchange) unanswered(err error) *fault {
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &certificate):
		return &fault{kind: refused, why: fmt.Sprintf("has a certificate that is not trusted (%v): correct it, or name your authority's with SSL_CERT_FILE", certificate.Err)}
	case x.connected:
		return &fault{kind: unknown, why: "broke off the connection: " + bare(err)}
	}
	return &fault{kind: away, why: "cannot be reached: " + bare(err)}
}

// failed is an attempt whose HTTP status is a failure.
func (x *exchange) failed(err error) *fault {
	f := &fault{kind: refused, why: fmt.Sprintf("answered %d %s%s", x.status, http.StatusText(x.status), messageOf(x.body))}
	inSession := x.session != nil && x.session.id != ""
	switch x.status {
	case http.StatusUnauthorized, http.StatusForbidden:
		f.unauthorized = true
		f.why += `: add an "Authorization" header to "headers" of its manifest, or renew the one that is there`
	case http.StatusNotFound: // also what MCP says about a session that the server does not know
		if inSession {
			f.kind = lost
		} else {
			f.why += `: correct the "url"; if it is right, the server may speak only the older transport: set "transport" to "sse"`
		}
	case http.StatusBadRequest: // also what many servers say about such a session
		f.malformed = true
		if inSession {
			f.kind, f.doubtful = lost, true
		}
	case http.StatusMethodNotAllowed:
		f.why += `: the server may speak only the older transport: set "transport" to "sse"`
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		f.kind = away
		if seconds, err := strconv.Atoi(x.header.Get("Retry-After")); err == nil && seconds > 0 {
			f.after = min(time.Duration(seconds)*time.Second, maxRetryAfter)
		}
	case http.StatusRequestEntityTooLarge:
		f.malformed = true
		f.why += ": the request is too large for it"
	default:
		if x.status >= 500 {
			f.kind = unknown
		}
	}
	return f
}

// errorOf returns the error of a JSON-RPC response to id.
func errorOf(body []byte, id jsonrpc.ID) (answer, bool) {
	m, err := jsonrpc.DecodeMessage(body)
	if err != nil {
		return answer{}, false
	}
	r, ok := m.(*jsonrpc.Response)
	if !ok || r.ID != id || !id.IsValid() || r.Error == nil {
		return answer{}, false
	}
	return answer{errObj: wire.Member(body, "error")}, true
}

// messageOf returns what a failed response says about it, with ": " before it, "" if that is nothing to show.
func messageOf(body []byte) string {
	var doc struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	text := strings.TrimSpace(string(body))
	if json.Unmarshal(body, &doc) == nil {
		text = strings.TrimSpace(doc.Error.Message)
	}
	text, _, _ = strings.Cut(text, "\n")
	if text == "" || strings.HasPrefix(text, "<") || len(text) > 200 {
		return ""
	}
	return " (" + strings.ToValidUTF8(text, "?") + ")"
}

// bare returns an error without the url that net/http puts before it: there may be secrets in that.
func bare(err error) string {
	var u *url.Error
	switch {
	case err == nil:
		return "the answer ended"
	case errors.As(err, &u):
		return u.Err.Error()
	case strings.Contains(err.Error(), "://"): // the SDK has made a text of it
		return "the stream broke off and could not be resumed"
	}
	return err.Error()
}

// wireError is the fault as the client gets it. ran says that this attempt or an earlier one may have been executed.
func (f *fault) wireError(server string, ran bool) *wire.Error {
	message := fmt.Sprintf("the server at %s %s", server, f.why)
	data := wire.ErrorData{Detail: f.why}
	switch {
	case f.kind == oversized:
		return wire.NewError(wire.CodeResponseTooLarge, message, data)
	case f.malformed && !ran:
		return wire.NewError(wire.CodeInvalidRequest, message, data)
	case ran:
		return wire.NewError(wire.CodeOutcomeUnknown, message+". The request may have run; it will not be repeated. Check before you try again.", data)
	case f.kind != refused:
		data.RetryAfterMS = max(f.after, minRetryAfter).Milliseconds()
	}
	return wire.NewError(wire.CodeUnavailable, message, data)
}

// minRetryAfter is what a client is asked to wait at least: 1 s.
const minRetryAfter = time.Second
