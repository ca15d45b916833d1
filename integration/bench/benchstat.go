//go:build linux

package main

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// benchstat decides whether two runs differ. Pinned: another version formats in another way.
const benchstat = "golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da"

// significance is the chance of a false alarm that is accepted for one cell: one in a thousand, since there are about
// a hundred cells and each has two numbers.
const significance = 0.001

// Units of what is compared. All are ratios to what was measured in the same round, which the machine slows down alike.
const (
	busyUnit  = "busy-ratio"  // processor time
	timeUnit  = "time-ratio"  // elapsed time: what another program does meanwhile may move it
	startUnit = "start-ratio" // time of a start
)

// samples writes every round in the format of go test -bench, which benchstat reads.
func (r *report) samples(w io.Writer) {
	for _, unit := range []string{busyUnit, timeUnit, startUnit} {
		fmt.Fprintf(w, "Unit %s better=lower\n", unit)
	}
	for _, c := range r.Cells {
		if c.Target == limitName {
			continue // 1 by definition
		}
		for i := range c.Ratios {
			fmt.Fprintf(w, "BenchmarkCall/%s 1 %g %s %g %s\n", c.Name, c.BusyRate[i], busyUnit, c.Ratios[i], timeUnit)
		}
	}
	for i, s := range r.Startup {
		for _, ratio := range s.Ratios {
			if i > 0 { // the first is 1 by definition
				fmt.Fprintf(w, "BenchmarkStart/%s 1 %g %s\n", strings.ReplaceAll(s.Name, " ", "_"), ratio, startUnit)
			}
		}
	}
}

// moved is one number that differs between two runs by more than rounds differ among themselves.
type moved struct {
	cell, unit  string
	before, now float64
	change, p   string
}

// slower reports a change for the worse that counts: elapsed times are shown, and decide nothing.
func (m moved) slower() bool { return m.now > m.before && m.unit != timeUnit }

// compare asks benchstat which numbers moved since before, prints them, and counts those that are slower.
func (r *report) compare(before *report, dir string, w io.Writer) (slower int, err error) {
	paths := []string{filepath.Join(dir, "before"), filepath.Join(dir, "now")}
	for i, one := range []*report{before, r} {
		var text bytes.Buffer
		one.samples(&text)
		if err := os.WriteFile(paths[i], text.Bytes(), 0o600); err != nil {
			return 0, err
		}
	}
	cmd := exec.Command("go", "run", benchstat, "-alpha", fmt.Sprint(significance), "-format", "csv", "before="+paths[0], "now="+paths[1])
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("benchstat: %w: %s (it is fetched once, as a Go module)", err, bytes.TrimSpace(said.Bytes()))
	}
	all, compared, err := parseBenchstat(bytes.NewReader(out))
	if err != nil {
		return 0, fmt.Errorf("benchstat: %w", err)
	}
	if compared == 0 {
		return 0, errors.New("the baseline has no cell that was measured now")
	}
	if before.CPUs != r.CPUs || before.Go != r.Go || before.Pinned != r.Pinned {
		fmt.Fprintf(w, "\nThe baseline is of %s, %d CPUs, pinned to %d.\n", before.Go, before.CPUs, before.Pinned)
	}
	fmt.Fprintf(w, "\nAgainst the baseline, by benchstat:\n\n")
	if len(all) > 0 {
		table(w, "cell", "of", "#before", "#now", "#change", "p, n")
	}
	for _, m := range all {
		if m.slower() {
			slower++
		}
		row(w, m.cell, m.unit, fmt.Sprintf("%.2f", m.before), fmt.Sprintf("%.2f", m.now), m.change, m.p)
	}
	if len(all) > 0 {
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "%d of %d numbers moved beyond the noise (p < %g), %d are slower by processor time or start.", len(all), compared, significance, slower)
	if min(before.Rounds, r.Rounds) < enoughRounds {
		fmt.Fprintf(w, " With fewer than %d rounds hardly anything can.", enoughRounds)
	}
	fmt.Fprintln(w)
	return slower, nil
}

// enoughRounds is the least on both sides that can differ by less than significance: 2 ÷ (14 over 7) is 0.0006.
const enoughRounds = 7

// parseBenchstat reads the table that benchstat prints for two files: a head for each unit, then a line for each cell.
func parseBenchstat(in io.Reader) (all []moved, compared int, err error) {
	lines := csv.NewReader(in)
	lines.FieldsPerRecord = -1
	unit := ""
	for {
		line, err := lines.Read()
		switch {
		case errors.Is(err, io.EOF):
			return all, compared, nil
		case err != nil:
			return nil, 0, err
		case len(line) == 7 && line[0] == "" && line[5] == "vs base":
			unit = line[1]
		case len(line) == 7 && line[0] != "" && line[0] != "geomean" && line[6] != "":
			compared++
			if line[5] == "~" {
				continue
			}
			before, err1 := strconv.ParseFloat(line[1], 64)
			now, err2 := strconv.ParseFloat(line[3], 64)
			if err := errors.Join(err1, err2); err != nil {
				return nil, 0, err
			}
			all = append(all, moved{strings.TrimPrefix(line[0], "Call/"), unit, before, now, line[5], strings.TrimPrefix(line[6], "p=")})
		}
	}
}
