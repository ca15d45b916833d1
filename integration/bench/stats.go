//go:build linux

package main

import (
	"math"
	"slices"
	"time"
)

// quantile of values, which it sorts a copy of; NaN when there are none.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	at := q * float64(len(sorted)-1)
	low := int(at)
	if low+1 == len(sorted) {
		return sorted[low]
	}
	return sorted[low] + (at-float64(low))*(sorted[low+1]-sorted[low])
}

func median(values []float64) float64 { return quantile(values, 0.5) }

// micros turns durations into microseconds.
func micros(took []time.Duration) []float64 {
	out := make([]float64, len(took))
	for i, d := range took {
		out[i] = float64(d) / float64(time.Microsecond)
	}
	return out
}
