package wrap

import (
	"bytes"
	"fmt"
	"sync"
	"time"

	"github.com/sox-host/sox-host/host/internal/process"
)

// maxJunkTail bounds what is kept of a server's last junk for a crash report: 64 lines. Servers that fail at
// their start often say why on stdout.
const maxJunkTail = 64

// junk receives what a server prints on stdout that is no message, and passes it to the receiver of its
// stderr. Like there, a line is cut at process.MaxLineBytes and no more than process.MaxOutputRate bytes a
// second pass; what is dropped is reported with the next line that passes, or at the end. Safe for concurrent
// use.
type junk struct {
	output func(process.Line) // may be nil

	mu      sync.Mutex
	tail    []string // sanitised; the last lines, also those that were dropped
	second  time.Time
	spent   int // bytes passed since second
	dropped int
	lost    int64 // bytes of the dropped lines
}

// line takes one line without its line end.
func (j *junk) line(text []byte) {
	text = bytes.TrimRight(text, " \t\r")
	if len(text) == 0 {
		return
	}
	cut := max(0, len(text)-process.MaxLineBytes)
	text = text[:len(text)-cut]
	kept := process.Sanitize(text)
	if cut > 0 {
		kept += fmt.Sprintf(" [%d bytes cut]", cut)
	}
	now := time.Now()
	j.mu.Lock()
	j.tail = append(j.tail, kept)
	if len(j.tail) > maxJunkTail {
		j.tail = append(j.tail[:0], j.tail[len(j.tail)-maxJunkTail:]...)
	}
	if now.Sub(j.second) >= time.Second {
		j.second, j.spent = now, 0
	}
	pass := j.spent+len(text) <= process.MaxOutputRate
	var report process.Line
	if pass {
		j.spent += len(text)
		report = j.reportLocked()
	} else {
		j.dropped++
		j.lost += int64(len(text) + cut)
	}
	j.mu.Unlock()
	if j.output == nil || !pass {
		return
	}
	if report.Dropped > 0 {
		j.output(report)
	}
	j.output(process.Line{Stream: process.Stdout, Text: text, Cut: cut})
}

// reportLocked takes the report of dropped lines; its Dropped is 0 when there are none.
func (j *junk) reportLocked() process.Line {
	if j.dropped == 0 {
		return process.Line{}
	}
	report := process.Line{
		Stream:       process.Stdout,
		Text:         fmt.Appendf(nil, "%d lines (%d bytes) dropped: more than %d KiB of output a second", j.dropped, j.lost, process.MaxOutputRate>>10),
		Dropped:      j.dropped,
		DroppedBytes: j.lost,
	}
	j.dropped, j.lost = 0, 0
	return report
}

// end reports what was dropped last. Called once, after the last line.
func (j *junk) end() {
	j.mu.Lock()
	report := j.reportLocked()
	j.mu.Unlock()
	if report.Dropped > 0 && j.output != nil {
		j.output(report)
	}
}

// lines returns the last lines, oldest first.
func (j *junk) lines() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]string(nil), j.tail...)
}
