//go:build linux

package main

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
)

// What benchstat printed for two runs; the last cell is in one of them alone.
const benchstatOutput = `,before,,now,,,
,busy-ratio,CI,busy-ratio,CI,vs base,P
Call/sox-bare-tool/100B/1,1.26237,5%,1.62782,3%,+28.95%,p=0.000 n=11
Call/sox-bare-tool/4KiB/1,1.26323,2%,1.24783,2%,~,p=0.151 n=11
geomean,1.2627999267896717,,1.4252166960150305,,+12.86%,

,before,,now,,,
,time-ratio,CI,time-ratio,CI,vs base,P
Call/sox-bare-tool/100B/1,1.22906,4%,1.93477,3%,+57.42%,p=0.000 n=11
Call/sox-bare-tool/4KiB/1,1.94191,3%,1.24638,3%,-35.82%,p=0.000 n=11
"Start/of,_one",,,3,∞
geomean,1.235468293644155,,1.664870924063098,,+0.39%,
`

func TestParseBenchstat(t *testing.T) {
	t.Parallel()
	got, compared, err := parseBenchstat(strings.NewReader(benchstatOutput))
	want := []moved{
		{"sox-bare-tool/100B/1", busyUnit, 1.26237, 1.62782, "+28.95%", "0.000 n=11"},
		{"sox-bare-tool/100B/1", timeUnit, 1.22906, 1.93477, "+57.42%", "0.000 n=11"},
		{"sox-bare-tool/4KiB/1", timeUnit, 1.94191, 1.24638, "-35.82%", "0.000 n=11"},
	}
	if err != nil || compared != 4 || !reflect.DeepEqual(got, want) {
		t.Fatalf("%d compared, %v\n%+v\nwant\n%+v", compared, err, got, want)
	}
	for i, slower := range []bool{true, false, false} {
		if got[i].slower() != slower {
			t.Errorf("%+v: slower is %v", got[i], !slower)
		}
	}
}

// Samples are lines of the format of go test -bench, without what is 1 by definition.
func TestSamples(t *testing.T) {
	t.Parallel()
	r := &report{
		Cells: []*cell{
			{Name: "limit/100B/1", Target: limitName, Ratios: []float64{1}, BusyRate: []float64{1}},
			{Name: "stdio/100B/1", Target: "stdio", Ratios: []float64{0.5, 0.6}, BusyRate: []float64{0.25, 0.75}},
		},
		Startup: []*startup{{Name: "bare", Ratios: []float64{1}}, {Name: "sox-host, 20 plugins", Ratios: []float64{2.5}}},
	}
	var out bytes.Buffer
	r.samples(&out)
	const want = `Unit busy-ratio better=lower
Unit time-ratio better=lower
Unit start-ratio better=lower
BenchmarkCall/stdio/100B/1 1 0.25 busy-ratio 0.5 time-ratio
BenchmarkCall/stdio/100B/1 1 0.75 busy-ratio 0.6 time-ratio
BenchmarkStart/sox-host,_20_plugins 1 2.5 start-ratio
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
}
