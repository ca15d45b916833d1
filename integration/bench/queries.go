//go:build linux

package main

import (
	"maps"
	"slices"
	"time"
)

// queries is the first seed's comparison: many round trips, one at a time.
type queries struct {
	Name  string  `json:"name"`
	Count int     `json:"count"`
	P50   float64 `json:"p50_us"`
	P99   float64 `json:"p99_us"`
	Total float64 `json:"total_ms"`
}

// measureQueries makes n round trips of 100 B on each target, a tenth at a time in turns.
func measureQueries(targets []*target, n int) ([]queries, error) {
	if n < 10 {
		return nil, nil
	}
	recs := make(map[string]*record)
	total := make(map[string]time.Duration)
	for range 10 {
		for _, t := range targets {
			switch t.name {
			case "stdio", "http", "sox-bare-plain", "sox-sdk-plain":
			default:
				continue
			}
			if recs[t.name] == nil {
				recs[t.name] = new(record)
			}
			elapsed, err := t.exchange(t.message(100), n/10, 1, recs[t.name])
			if err != nil {
				return nil, err
			}
			total[t.name] += elapsed
		}
	}
	var out []queries
	for _, name := range slices.Sorted(maps.Keys(recs)) {
		us := micros(recs[name].took)
		out = append(out, queries{name, len(us), median(us), quantile(us, 0.99), total[name].Seconds() * 1e3})
	}
	return out, nil
}
