package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/sox-host/sox-host/integration/internal/history"
)

// verdict compares what was asked, what was answered and what was done, and prints the last line.
func (s *show) verdict(ctx context.Context) error {
	h := s.record.History()
	var err error
	if h.Ledger, err = history.ReadLedger(s.journal()); err != nil {
		return err
	}
	// The journal says which version did the work.
	did := map[string]history.Entry{}
	for _, entry := range h.Ledger {
		did[entry.Nonce] = entry
	}
	for _, op := range h.Ops {
		op.Version = did[op.Nonce].Version
	}
	h.UpgradesOnly = true
	h.Lists = map[string]map[string][]string{"notes": {
		older: {"notes__backlinks", "notes__read_note", "notes__search"},
		newer: {"notes__backlinks", "notes__outline", "notes__read_note", "notes__search"},
	}}
	violations := h.Check()
	lost, repeated := 0, 0
	for _, op := range h.Ops {
		if op.Outcome != history.OK {
			lost++
		}
	}
	times := map[string]int{}
	for _, entry := range h.Ledger {
		if times[entry.Nonce]++; times[entry.Nonce] == 2 {
			repeated++
		}
	}
	for _, v := range violations {
		fmt.Fprintln(os.Stderr, "demo:", v)
	}
	fmt.Println()
	fmt.Printf("%s calls  %d lost  %d repeated  p99 while upgrading %.1f ms  list_changed %d\n",
		thousands(len(h.Ops)), lost, repeated, float64(s.p99())/float64(time.Millisecond), len(h.Notices))
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted")
	case len(violations) > 0 || lost > 0 || repeated > 0:
		return fmt.Errorf("promises are broken; the log of the host:\n%s", s.hostLog())
	case len(h.Switches) != 3 || h.Switches[0].Failed || h.Switches[1].Failed || !h.Switches[2].Failed:
		return fmt.Errorf("the upgrade and the rollback should work, and the broken version be refused; the log of the host:\n%s", s.hostLog())
	}
	return nil
}

// p99 is the 99th percentile of the calls that were open while a command ran.
func (s *show) p99() time.Duration {
	var during []time.Duration
	for _, c := range s.calls {
		if slices.ContainsFunc(s.windows, func(w window) bool { return c.from <= w.to && c.to >= w.from }) {
			during = append(during, c.to-c.from)
		}
	}
	if len(during) == 0 {
		return 0
	}
	slices.Sort(during)
	return during[len(during)*99/100]
}

// thousands writes 4212 as 4,212.
func thousands(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
