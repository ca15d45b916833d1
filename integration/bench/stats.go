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

// mannWhitney returns the two-sided probability that a and b differ as they do by chance, by the normal
// approximation with a correction for ties and continuity. It needs no distribution; with fewer than 4 samples
// on a side it returns 1, since nothing can then be told.
func mannWhitney(a, b []float64) float64 {
	if len(a) < 4 || len(b) < 4 {
		return 1
	}
	type ranked struct {
		value float64
		first bool
	}
	all := make([]ranked, 0, len(a)+len(b))
	for _, v := range a {
		all = append(all, ranked{v, true})
	}
	for _, v := range b {
		all = append(all, ranked{v, false})
	}
	slices.SortFunc(all, func(x, y ranked) int {
		switch {
		case x.value < y.value:
			return -1
		case x.value > y.value:
			return 1
		}
		return 0
	})
	var rankSum, ties float64
	for i := 0; i < len(all); {
		j := i
		for j < len(all) && all[j].value == all[i].value {
			j++
		}
		rank := float64(i+j+1) / 2 // the mean of ranks i+1 … j
		for k := i; k < j; k++ {
			if all[k].first {
				rankSum += rank
			}
		}
		t := float64(j - i)
		ties += t*t*t - t
		i = j
	}
	n, m := float64(len(a)), float64(len(b))
	total := n + m
	u := rankSum - n*(n+1)/2
	variance := n * m / 12 * (total + 1 - ties/(total*(total-1)))
	if variance <= 0 {
		return 1
	}
	z := (math.Abs(u-n*m/2) - 0.5) / math.Sqrt(variance)
	return min(1, math.Erfc(max(z, 0)/math.Sqrt2))
}
