//go:build linux

package main

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// oneShot compares what a batch script does, a process for each call, with one warm worker that gets the same calls:
// the third seed's comparison. The program is the same, a plugin of the SDK, which is an MCP server when it is started
// by hand.
type oneShot struct {
	AtOnce int     `json:"at_once"`
	Name   string  `json:"name"`
	P50    float64 `json:"p50_ms"` // of one call; that of a process begins with its start
	P95    float64 `json:"p95_ms"`
	Batch  float64 `json:"batch_ms"` // median time until all calls at once are answered
	Factor float64 `json:"factor"`   // median of the processes' batch by this one's in the same round
}

const (
	processes  = "a process for each call"
	warmDirect = "one warm worker"
	warmHosted = "one warm worker behind sox-host"
)

// measureOneShot runs batches of each kind in turns, and in alternate order. starts are the times until the warm ones
// had answered a first call.
func measureOneShot(p *programs, rounds int, out io.Writer) (results []*oneShot, starts map[string]float64, err error) {
	starts = make(map[string]float64)
	direct, hosted, stop, err := warmWorkers(p, starts)
	if err != nil {
		return nil, nil, err
	}
	defer stop()
	for _, atOnce := range []int{1, 3, 16} {
		fmt.Fprintf(out, "\rone process per call, %d at once ", atOnce)
		kinds := []struct {
			*oneShot
			run  func() ([]time.Duration, error)
			took []time.Duration
			all  []float64
			than []float64
		}{
			{oneShot: &oneShot{Name: processes}, run: func() ([]time.Duration, error) { return processBatch(p, atOnce) }},
			{oneShot: &oneShot{Name: warmDirect}, run: func() ([]time.Duration, error) { return warmBatch(direct, "say", atOnce) }},
			{oneShot: &oneShot{Name: warmHosted}, run: func() ([]time.Duration, error) { return warmBatch(hosted, "echo__say", atOnce) }},
		}
		for round := range rounds {
			for i := range kinds {
				k := &kinds[i]
				if round%2 == 1 {
					k = &kinds[len(kinds)-1-i]
				}
				begun := time.Now()
				took, err := k.run()
				if err != nil {
					return nil, nil, fmt.Errorf("%s: %w", k.Name, err)
				}
				k.all = append(k.all, time.Since(begun).Seconds()*1e3)
				k.took = append(k.took, took...)
			}
			for i := range kinds {
				kinds[i].than = append(kinds[i].than, kinds[0].all[round]/kinds[i].all[round])
			}
		}
		for _, k := range kinds {
			us := micros(k.took)
			k.AtOnce, k.P50, k.P95, k.Batch, k.Factor = atOnce, median(us)/1e3, quantile(us, 0.95)/1e3, median(k.all), median(k.than)
			results = append(results, k.oneShot)
		}
	}
	fmt.Fprintln(out)
	return results, starts, nil
}

// warmWorkers starts the worker by itself and behind a host, and lets each answer once.
func warmWorkers(p *programs, starts map[string]float64) (direct, hosted *client, stop func(), err error) {
	begun := time.Now()
	worker, err := start(nil, nil, p.echo)
	if err != nil {
		return nil, nil, nil, err
	}
	if direct, err = firstAnswer(worker, "say"); err != nil {
		worker.stop()
		return nil, nil, nil, err
	}
	starts[warmDirect] = time.Since(begun).Seconds() * 1e3
	home, err := p.home(map[string]plugin{"echo": {program: p.echo}})
	if err != nil {
		worker.stop()
		return nil, nil, nil, err
	}
	begun = time.Now()
	host, err := start(nil, nil, p.host, "serve", "--home", home, "--log-level", "error")
	if err != nil {
		worker.stop()
		return nil, nil, nil, err
	}
	stop = func() { host.stop(); worker.stop() }
	if hosted, err = firstAnswer(host, "echo__say"); err != nil {
		stop()
		return nil, nil, nil, err
	}
	starts[warmHosted] = time.Since(begun).Seconds() * 1e3
	return direct, hosted, stop, nil
}

// firstAnswer makes the handshake and one call.
func firstAnswer(proc *process, name string) (*client, error) {
	c := newClient(proc)
	if err := handshake(c, name); err != nil {
		return nil, err
	}
	_, err := c.call("tools/call", fmt.Sprintf(`{"name":%q,"arguments":{"text":"x"}}`, name))
	return c, err
}

// processBatch starts a process for each call, all at once, and reports the times from each start to its answer.
func processBatch(p *programs, atOnce int) ([]time.Duration, error) {
	var mu sync.Mutex
	var took []time.Duration
	var failed error
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			begun := time.Now()
			proc, err := start(nil, nil, p.echo)
			if err == nil {
				defer proc.stop()
				_, err = firstAnswer(proc, "say")
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, time.Since(begun))
			if err != nil {
				failed = err
			}
		})
	}
	wg.Wait()
	return took, failed
}

// warmBatch makes the same calls on a worker that runs.
func warmBatch(c *client, name string, atOnce int) ([]time.Duration, error) {
	var rec record
	_, err := c.exchange(tool(name, "")(1), atOnce, atOnce, &rec)
	return rec.took, err
}
