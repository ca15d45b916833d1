//go:build linux

package main

import (
	"errors"
	"sync"
	"time"
)

// turns are how often host and limit take turns within one sample, so that both meet the same disturbances.
const turns = 4

// pace is what calls take, in microseconds.
type pace struct {
	one  []float64 // one at a time, of one client after the other
	many []float64 // many at once, per call

	cpu   int64 // nanoseconds of the relays
	count int   // of all calls
}

func (p *pace) cpuPerCall() float64 { return float64(p.cpu) / float64(p.count) }

// calls adds to both for a while each: calls one at a time, and then atOnce in flight of every client. relays are the
// programs whose processor time counts.
func (p *pace) calls(relays []*process, clients []*client, m message, atOnce int, d time.Duration) error {
	for _, r := range relays {
		p.cpu -= r.cpu()
	}
	defer func() {
		for _, r := range relays {
			p.cpu += r.cpu()
		}
	}()
	var rec record
	for until := time.Now().Add(d); time.Now().Before(until); {
		for _, c := range clients {
			if _, err := c.exchange(m, 1, 1, &rec); err != nil {
				return err
			}
		}
	}
	p.one = append(p.one, micros(rec.took)...)
	p.count += len(rec.took)
	for until := time.Now().Add(d); time.Now().Before(until); {
		begun := time.Now()
		each := 4 * atOnce
		if err := callEach(clients, m, each, atOnce); err != nil {
			return err
		}
		n := each * len(clients)
		p.many = append(p.many, float64(time.Since(begun).Microseconds())/float64(n))
		p.count += n
	}
	return nil
}

// callEach makes n calls of every client, all clients at once.
func callEach(clients []*client, m message, n, atOnce int) error {
	errs := make([]error, len(clients))
	var wg sync.WaitGroup
	for i, c := range clients {
		wg.Go(func() { _, errs[i] = c.exchange(m, n, atOnce, new(record)) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
