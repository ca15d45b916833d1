//go:build linux

package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// answerTime is how long one answer over HTTP may take before it is a failure: 60 s, far above what a busy machine
// needs for sixteen of 60 KiB.
const answerTime = 60 * time.Second

// keptConnections is an HTTP client that keeps as many connections as requests are in flight.
func keptConnections() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, Timeout: answerTime}
}

// each makes n requests with once, inFlight at a time, and records them as client.exchange does. once is called from
// several goroutines.
func each(once func(m message) error) func(m message, n, inFlight int, rec *record) (time.Duration, error) {
	return func(m message, n, inFlight int, rec *record) (time.Duration, error) {
		var left atomic.Int64
		left.Store(int64(n))
		var mu sync.Mutex
		var failed error
		var wg sync.WaitGroup
		begun := time.Now()
		for range min(inFlight, n) {
			wg.Go(func() { // ends when all requests have been made, or at its first failure
				var mine record
				var err error
				for err == nil && left.Add(-1) >= 0 {
					sent := time.Now()
					err = once(m)
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
}

// webClient makes the requests of the daemon that speaks plain JSON-RPC over HTTP.
func webClient(address string) func(m message) error {
	url, client := "http://"+strings.TrimSpace(address)+"/", keptConnections()
	return func(m message) error {
		resp, err := client.Post(url, "application/json", bytes.NewReader(m.append(nil, 1)))
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
}
