package process

import (
	"bytes"
	"fmt"
	"sync"
)

// TailBytes is how much of a process's last output is kept for crash reports:
// 64 KiB is a long stack trace and costs little for a dozen plugins.
const TailBytes = 64 << 10

// tail keeps the last lines of a process, at most TailBytes of them. It is
// safe for concurrent use; the zero value is empty.
//
// Lines are appended with a line feed, which no line contains. When the buffer
// reaches twice the size its older half is thrown away, so adding is a copy of
// the line and nothing else.
type tail struct {
	mu  sync.Mutex
	buf []byte // guarded by mu
}

// add appends a line of which over bytes are missing.
func (t *tail) add(text []byte, over int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.buf)+len(text) >= 2*TailBytes {
		kept := copy(t.buf, lastLines(t.buf))
		t.buf = t.buf[:kept]
	}
	t.buf = append(t.buf, text...)
	if over > 0 {
		t.buf = fmt.Appendf(t.buf, " [%d bytes cut]", over)
	}
	t.buf = append(t.buf, '\n')
}

// lines returns the lines, oldest first, made harmless by Sanitize.
func (t *tail) lines() []string {
	t.mu.Lock()
	kept := bytes.Clone(lastLines(t.buf))
	t.mu.Unlock()
	var lines []string
	for text := range bytes.Lines(kept) {
		lines = append(lines, Sanitize(bytes.TrimSuffix(text, []byte{'\n'})))
	}
	return lines
}

// lastLines returns the whole lines in the last TailBytes of buf.
func lastLines(buf []byte) []byte {
	if len(buf) <= TailBytes {
		return buf
	}
	// The byte before the cut decides whether a line begins there.
	rest := buf[len(buf)-TailBytes-1:]
	return rest[bytes.IndexByte(rest, '\n')+1:]
}
