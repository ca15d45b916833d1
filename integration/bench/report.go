//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
)

// report is everything of one run, as the JSON file has it.
type report struct {
	Go         string             `json:"go"`
	CPUs       int                `json:"cpus"`
	Pinned     int                `json:"pinned"` // the core that everything ran on; -1 = any
	Rounds     int                `json:"rounds"`
	Cells      []*cell            `json:"cells"`
	Peers      []*peerNote        `json:"peers,omitempty"`
	Queries    []queries          `json:"queries,omitempty"`
	Startup    []*startup         `json:"startup,omitempty"`
	OneShot    []*oneShot         `json:"one_shot,omitempty"`
	WarmStarts map[string]float64 `json:"warm_starts_ms,omitempty"` // of the workers of OneShot, until their first answer
	Idle       []idle             `json:"idle,omitempty"`
	Goroutines uint64             `json:"goroutines,omitempty"` // of the idle host with four plugins
	Allocs     []allocation       `json:"allocs,omitempty"`
	Growth     []*axis            `json:"growth,omitempty"`
	Events     []*event           `json:"events,omitempty"`
}

func newReport(pinned, rounds int) *report {
	return &report{Go: runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(), Pinned: pinned, Rounds: rounds}
}

func (r *report) save(path string) error {
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

func loadReport(path string) (*report, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := new(report)
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// limits are the cells of the limit, by load.
func (r *report) limits() map[load]*cell { return r.cellsOf(limitName) }

// cellsOf are the cells of one target, by load.
func (r *report) cellsOf(target string) map[load]*cell {
	cells := make(map[load]*cell)
	for _, c := range r.Cells {
		if c.Target == target {
			cells[load{c.Payload, c.InFlight}] = c
		}
	}
	return cells
}
