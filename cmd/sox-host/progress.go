package main

import (
	"fmt"
	"io"
	"os"

	"github.com/sox-host/sox-host/host"
)

// progress shows the present step on a terminal, on one line that the result replaces. Elsewhere it shows nothing:
// the result has all times.
type progress struct {
	w     io.Writer // nil when stderr is no terminal
	shown bool
}

func newProgress(stderr io.Writer) *progress {
	if f, ok := stderr.(*os.File); ok && isTerminal(f) {
		return &progress{w: f}
	}
	return &progress{}
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}

// step is called for one step at a time.
func (p *progress) step(pid int, e host.StepEvent) {
	if p.w == nil {
		return
	}
	line := fmt.Sprintf("%s  %s %s", e.Plugin, e.Step, millis(e.MS))
	if pid != 0 {
		line += fmt.Sprintf("   host %d", pid)
	}
	if e.Detail != "" {
		line += "   " + e.Detail
	}
	fmt.Fprintf(p.w, "\r\x1b[K%.100s", oneLine(line))
	p.shown = true
}

func (p *progress) clear() {
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
