//go:build linux

package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// serveHTTP is the daemon that the first seed compares with: JSON-RPC over localhost HTTP with kept connections.
// It prints its address.
func serveHTTP() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		i := bytes.Index(body, []byte(`"params":`))
		if err != nil || i < 0 {
			http.Error(w, "bad request", http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"jsonrpc":"2.0","id":1,"result":`)) // a client that went away has no use for an error
		_, _ = w.Write(body[i+len(`"params":`):])
	}))
}

// httpClient keeps as many connections as requests are in flight.
type httpClient struct {
	url  string
	http http.Client
}

func newHTTPClient(address string) *httpClient {
	return &httpClient{
		url:  "http://" + strings.TrimSpace(address) + "/",
		http: http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}},
	}
}

// exchange is client.exchange over HTTP.
func (h *httpClient) exchange(m message, n, inFlight int, rec *record) (time.Duration, error) {
	var left atomic.Int64
	left.Store(int64(n))
	var mu sync.Mutex
	var failed error
	var wg sync.WaitGroup
	begun := time.Now()
	for range min(inFlight, n) {
		wg.Go(func() {
			var mine record
			var err error
			for err == nil && left.Add(-1) >= 0 {
				sent := time.Now()
				err = h.once(m)
				now := time.Now()
				mine.took = append(mine.took, now.Sub(sent))
				mine.at = append(mine.at, now.Sub(begun))
			}
			mu.Lock()
			defer mu.Unlock()
			rec.took, rec.at = append(rec.took, mine.took...), append(rec.at, mine.at...)
			if err != nil {
				failed = err
			}
		})
	}
	wg.Wait()
	slices.Sort(rec.at)
	return time.Since(begun), failed
}

func (h *httpClient) once(m message) error {
	resp, err := h.http.Post(h.url, "application/json", bytes.NewReader(m.append(nil, 1)))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("http: %s", resp.Status)
	}
	return nil
}
