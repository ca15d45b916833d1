package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// dialTimeout bounds a connect and, on its own, a TLS handshake: 4 s. A host gives a plugin ten seconds to start and
	// may ask twice for the era in them.
	dialTimeout = 4 * time.Second
	// idleConns is how many idle connections are kept: 16, as many calls as one client has open on a busy day.
	idleConns = 16
	// pingAfter and pingTimeout find a dead HTTP/2 connection under a call that takes long: 45 s together.
	pingAfter, pingTimeout = 30 * time.Second, 15 * time.Second
	// maxRedirects on the server's own host: 5.
	maxRedirects = 5
	// maxErrorBody is how much of the body of a failed request is read: 64 KiB. An error in it is short.
	maxErrorBody = 64 << 10
)

// courier carries every HTTP request to the server: the SDK's transport runs on an http.Client made of it. It adds the
// configured headers and what belongs to the exchange, keeps both from any other host, bounds what comes back, and notes
// in the exchange what the SDK does not tell: whether the server may have the request, and what it answered. It is safe
// for concurrent use.
type courier struct {
	base    http.RoundTripper
	home    *url.URL
	secrets atomic.Pointer[http.Header]
	limit   int // bytes of one answer or event
}

func newTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		TLSHandshakeTimeout: dialTimeout,
		ForceAttemptHTTP2:   true,
		MaxIdleConns:        idleConns,
		MaxIdleConnsPerHost: idleConns,
		IdleConnTimeout:     90 * time.Second, // as http.DefaultTransport
		HTTP2:               &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}
}

// client returns the http.Client for the SDK.
func (c *courier) client() *http.Client {
	return &http.Client{Transport: c, CheckRedirect: c.redirect}
}

// strayError is a refusal to go to another host, or to turn a POST into a GET.
type strayError struct{ why string }

func (e *strayError) Error() string { return e.why }

// redirect follows the server only within its own scheme, host and port: elsewhere the headers would be in wrong hands.
func (c *courier) redirect(req *http.Request, via []*http.Request) error {
	switch {
	case !c.isHome(req.URL):
		return &strayError{fmt.Sprintf(`it redirects to %s://%s: if that is right, write it into the "url"`, req.URL.Scheme, req.URL.Host)}
	case req.Method != via[0].Method:
		return &strayError{fmt.Sprintf(`it redirects a %s with a status that makes it a %s: look at the "url"`, via[0].Method, req.Method)}
	case len(via) > maxRedirects:
		return &strayError{fmt.Sprintf("it redirects more than %d times", maxRedirects)}
	}
	return nil
}

// isHome says whether a url has the origin that the configuration names.
func (c *courier) isHome(u *url.URL) bool {
	return u.Scheme == c.home.Scheme && strings.EqualFold(u.Hostname(), c.home.Hostname()) && portOf(u) == portOf(c.home)
}

func portOf(u *url.URL) string {
	if port := u.Port(); port != "" {
		return port
	}
	return map[string]string{"http": "80", "https": "443"}[u.Scheme]
}

// RoundTrip implements http.RoundTripper. Every request belongs to an exchange.
func (c *courier) RoundTrip(req *http.Request) (*http.Response, error) {
	x := req.Context().Value(exchangeKey{}).(*exchange)
	refuse := func(err error) (*http.Response, error) {
		if req.Body != nil {
			_ = req.Body.Close() // a RoundTripper has to, and nothing was read
		}
		return nil, err
	}
	if !c.isHome(req.URL) { // HTTP+SSE lets the server name the place for its requests
		return refuse(&strayError{fmt.Sprintf("it wants its requests at %s://%s, which is another host", req.URL.Scheme, req.URL.Host)})
	}
	if x.standing && req.Method == http.MethodPost {
		_, _ = refuse(nil)
		return standingOpener(req), nil
	}
	out := req.Clone(httptrace.WithClientTrace(req.Context(), x.trace(req.Method)))
	for name, values := range *c.secrets.Load() {
		out.Header[name] = values
	}
	x.stamp(out.Header)
	resp, err := c.base.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody)) // what there is of it
		_ = resp.Body.Close()
		resp.Body = io.NopCloser(bytes.NewReader(body))
		x.note(req.Method, resp, body)
		return resp, nil
	}
	resp.Body = &boundedBody{ReadCloser: resp.Body, x: x, limit: c.limit, events: isEventStream(resp)}
	x.note(req.Method, resp, nil)
	if x.opened != nil && isEventStream(resp) {
		x.opened()
	}
	return resp, nil
}

func isEventStream(resp *http.Response) bool {
	kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(kind), "text/event-stream")
}
