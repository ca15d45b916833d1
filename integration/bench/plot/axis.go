package plot

import "math"

// axis maps values to 0 … 1.
type axis struct {
	log       bool
	low, high float64 // of the values, or of their logarithms
	ticks     []float64
}

// newAxis makes an axis for values. A linear one begins at 0 when no value is negative, so that lengths can be
// compared; a logarithmic one leaves out what is not positive.
func newAxis(log bool, values []float64) axis {
	low, high := math.Inf(1), math.Inf(-1)
	for _, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) || log && v <= 0 {
			continue
		}
		low, high = min(low, v), max(high, v)
	}
	if low > high { // nothing to show
		low, high = 1, 10
	}
	if log {
		return logAxis(low, high)
	}
	return linearAxis(min(low, 0), high)
}

// logAxis has ticks at 1, 2 and 5 times the powers of ten, and only at the powers where these would be too many.
func logAxis(low, high float64) axis {
	first, last := math.Floor(math.Log10(low)), math.Ceil(math.Log10(high))
	steps := []float64{1, 2, 5}
	if math.Log10(high/low) > 2.5 {
		steps = steps[:1]
	}
	a := axis{log: true, low: math.Log10(low), high: math.Log10(high)}
	var before, after float64 // the ticks next to the values
	for power := first; power <= last; power++ {
		for _, step := range steps {
			v := step * math.Pow(10, power)
			switch {
			case v <= low*(1+slack):
				before = v
			case v < high*(1-slack):
				a.ticks = append(a.ticks, v)
			case after == 0:
				after = v
			}
		}
	}
	if after == 0 {
		after = math.Pow(10, last)
	}
	if after <= before {
		after = before * 10
	}
	a.ticks = append(append([]float64{before}, a.ticks...), after)
	a.low, a.high = math.Log10(before), math.Log10(after)
	return a
}

// slack is what two numbers may differ by and still be the same tick.
const slack = 1e-9

// linearAxis has four to ten ticks, at multiples of 1, 2 or 5 times a power of ten.
func linearAxis(low, high float64) axis {
	if high <= low {
		high = low + 1
	}
	step := math.Pow(10, math.Floor(math.Log10((high-low)/4)))
	for _, more := range []float64{2, 2.5, 2} { // 1, 2, 5, 10
		if (high-low)/step <= 10 {
			break
		}
		step *= more
	}
	first, last := math.Floor(low/step), math.Ceil(high/step-slack)
	a := axis{low: first * step, high: last * step}
	for i := first; i <= last; i++ {
		a.ticks = append(a.ticks, i*step)
	}
	return a
}

// at is where a value stands, from 0 to 1.
func (a axis) at(v float64) float64 {
	if a.log {
		v = math.Log10(v)
	}
	return (v - a.low) / (a.high - a.low)
}

// shows reports a value that has a place.
func (a axis) shows(v float64) bool {
	return !math.IsNaN(v) && !math.IsInf(v, 0) && (!a.log || v > 0)
}
