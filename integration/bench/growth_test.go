//go:build linux

package main

import (
	"math"
	"strings"
	"testing"
)

// What grows with the square is named, with its power; what grows in proportion or not at all is not.
func TestGrowthVerdict(t *testing.T) {
	t.Parallel()
	a := &axis{Name: "n"}
	for _, n := range []float64{10, 100, 1000} {
		a.Points = append(a.Points, &point{N: int(n), Values: map[string][]float64{
			"call": {n * n}, "call ratio": {1.3, 1.2, 1.4}, "calls": {9}, "calls ratio": {n}, "cpu ratio": {1 + math.Log10(n)/10},
			"list": {n}, "list cpu": {n * n}, "bytes": {n}, "start": {20 + n/10}, "start cpu": {n / 5}, "pss": {5}, "guards": {0},
		}})
	}
	for key, want := range map[string]float64{"call ratio": 0, "calls ratio": 1, "list cpu": 2, "bytes": 1} {
		if got := a.steepest(key); math.Abs(got-want) > 1e-9 {
			t.Errorf("%s grows with the power %v, want %v", key, got, want)
		}
	}
	if v := a.verdict(); !strings.Contains(v, "CPU ms of the host for tools/list grows with the power 2.00") || strings.Contains(v, ";") {
		t.Error(v)
	}
	for _, at := range a.Points {
		at.Values["list cpu"] = []float64{1}
		at.Values["cpu ratio"] = []float64{math.Sqrt(float64(at.N))}
	}
	if v := a.verdict(); !strings.Contains(v, "CPU of the host for a call ÷ the limit's grew 10.0 times") || strings.Contains(v, ";") {
		t.Error(v)
	}
}
