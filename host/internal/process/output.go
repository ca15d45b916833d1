package process

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sox-host/sox-host/host/internal/pace"
)

const (
	// MaxLineBytes is where a line is cut: 8 KiB hold any sane log record, and
	// a program that never prints a line feed cannot make the host grow.
	MaxLineBytes = 8 << 10

	// MaxOutputRate is how many bytes a second of both streams together reach
	// Spec.Output: 256 KiB is some thousand lines, more than anybody reads and
	// little enough that a shouting plugin does not slow its neighbours. The
	// first second may use it at once.
	MaxOutputRate = 256 << 10

	// dropReportEvery is how often dropped lines are reported.
	dropReportEvery = time.Second

	// readBytes is the size of one read: half of what a Linux pipe holds, so
	// the writer goes on while the first half is looked at.
	readBytes = 32 << 10

	// burstOutput and outputPerSecond are how much of both streams together is
	// read as fast as it comes, and how much a second behind that, where a line
	// counts as one and every KiB as one more: 8,000 and 25,000. A plugin that
	// floods would otherwise use up one core by its writes, and the host
	// another. That is 2 MiB/s of short lines and 25 MiB/s of one long one; a
	// program that traces all it does prints a tenth of it, and never waits.
	burstOutput     = 8_000
	outputPerSecond = 25_000
	// pacedBytes is the size of one read of a process that is ahead of its
	// pace: 8 KiB. What it can write when it wakes is done in a fraction of a
	// millisecond, so nobody waits for the core for longer.
	pacedBytes = 8 << 10
	// leastPause is the shortest pause between two such reads, 2 ms, so that
	// timers are few. longestPause bounds one: 20 ms. A read of short lines
	// takes 4 ms.
	leastPause   = 2 * time.Millisecond
	longestPause = 20 * time.Millisecond
	// gulpPause is how long a process that filled half of a read is left to go on
	// before the next: 1 ms, in which a core prints what a pipe holds at the most.
	// So a burst is read in few pieces.
	gulpPause = time.Millisecond

	// maxDrainBytes bounds what is still read from one stream after the
	// process has exited: the largest pipe an ordinary Linux user may have. A
	// grandchild that goes on writing is not followed further.
	maxDrainBytes = 1 << 20
)

// OutputStats counts what a process printed. The counters only rise.
type OutputStats struct {
	Bytes        int64 // read from both streams
	Lines        int64 // completed lines, dropped ones included
	CutLines     int64 // lines longer than MaxLineBytes
	DroppedLines int64 // lines over MaxOutputRate
	DroppedBytes int64 // size of those lines
}

// source is the host's end of an output pipe.
type source interface {
	io.ReadCloser
	SetReadDeadline(time.Time) error
	// ReadNow reads what is there without waiting. It returns
	// os.ErrDeadlineExceeded when there is nothing.
	ReadNow([]byte) (int, error)
	// Rest runs wait, during which nobody reads.
	Rest(wait func())
}

// capture reads the output of one process until end of file or until finish.
// The process waits for one call of output at the most, or, while it prints
// more than outputPerSecond, for the few milliseconds that its pace takes.
//
// One goroutine per stream; they share the rate and the tail, which have locks
// of their own. Text that the process prints is never interpreted here.
type capture struct {
	output func(Line) // may be nil
	pace   *pace.Pace // of reading, until hurry
	rate   limiter    // of what reaches output
	tail   tail

	// ended is set before the read deadlines that finish sets, so a reader
	// that wakes up knows why.
	ended   atomic.Bool
	hurried chan struct{} // closed by hurry
	hurries sync.Once
	wakes   []func() // set their streams' read deadlines; complete before finish
	readers sync.WaitGroup

	bytes, lines, cut, droppedLines, droppedBytes atomic.Int64
}

// OutputPace returns the pace at which the output of one process is read.
func OutputPace() *pace.Pace { return pace.New(burstOutput, outputPerSecond, longestPause) }

// OutputCost is what lines of so many bytes together count in it.
func OutputCost(lines, bytes int) int { return lines + bytes>>10 }

// newCapture returns a capture that calls output, which may be nil, with each
// line.
func newCapture(output func(Line)) *capture {
	return &capture{
		output:  output,
		pace:    OutputPace(),
		hurried: make(chan struct{}),
	}
}

// start reads src until end of file or finish, then closes it. All starts come
// before finish.
func (c *capture) start(stream Stream, src source) {
	c.wakes = append(c.wakes, func() { _ = src.SetReadDeadline(time.Unix(1, 0)) })
	// Ends at end of file, at the latest when finish wakes it; joined there.
	c.readers.Go(func() {
		r := &reader{capture: c, stream: stream}
		r.run(src)
	})
}

// hurry lets everything be read as fast as it comes from now on: what ends must
// not wait.
func (c *capture) hurry() { c.hurries.Do(func() { close(c.hurried) }) }

// wait passes some time, unless somebody is in a hurry.
func (c *capture) wait(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.hurried:
	}
}

// finish takes what is still in the pipes and waits for the readers. It does
// not wait for end of file: another process may hold the pipe open for as long
// as it likes.
func (c *capture) finish() {
	c.ended.Store(true)
	c.hurry()
	for _, wake := range c.wakes {
		wake()
	}
	c.readers.Wait()
}

// stats returns the counters so far.
func (c *capture) stats() OutputStats {
	return OutputStats{
		Bytes:        c.bytes.Load(),
		Lines:        c.lines.Load(),
		CutLines:     c.cut.Load(),
		DroppedLines: c.droppedLines.Load(),
		DroppedBytes: c.droppedBytes.Load(),
	}
}

// reader is the state of one stream. It belongs to one goroutine.
type reader struct {
	*capture
	stream Stream

	line []byte // the beginning of a line whose end has not been read
	over int    // bytes of that line beyond MaxLineBytes

	dropped      int // lines dropped since the last report
	droppedBytes int64
	reportAt     time.Time // when to report them; zero if there are none
}

// run is the life of a reader.
func (r *reader) run(src source) {
	defer src.Close()
	buf := make([]byte, readBytes)
	for next := readBytes; ; {
		n, err := src.Read(buf[:next])
		next = readBytes
		lines := r.take(buf[:n])
		pause := r.pace.Take(OutputCost(max(lines, 1), n)) // a read is work too
		if errors.Is(err, os.ErrDeadlineExceeded) {
			// Either finish, or a report is due: take says so below.
			err = nil
		}
		if err != nil {
			break
		}
		r.reportIfDue()
		switch {
		case pause > 0:
			next = pacedBytes
		case n >= readBytes/2:
			pause = gulpPause
		}
		if pause == gulpPause || pause >= leastPause {
			src.Rest(func() { r.wait(pause) })
		}
		_ = src.SetReadDeadline(r.reportAt)
		// Looked at after the deadline was set, because that may have undone
		// the one by which finish wakes this goroutine.
		if r.ended.Load() {
			r.drain(src, buf)
			break
		}
	}
	r.endLine()
	r.report()
}

// drain reads what the pipe holds now.
func (r *reader) drain(src source, buf []byte) {
	_ = src.SetReadDeadline(time.Time{})
	for total := 0; total < maxDrainBytes; {
		n, err := src.ReadNow(buf)
		r.take(buf[:n])
		if err != nil {
			return
		}
		total += n
	}
}

// take splits data into lines, and returns how many ended.
func (r *reader) take(data []byte) (lines int) {
	if len(data) == 0 {
		return 0
	}
	r.bytes.Add(int64(len(data)))
	now := time.Now()
	for len(data) > 0 {
		end := bytes.IndexByte(data, '\n')
		if end < 0 {
			r.extend(data)
			return lines
		}
		lines++
		if len(r.line) == 0 && r.over == 0 && end <= MaxLineBytes {
			// The usual case: a whole line inside one read, not copied.
			r.emit(data[:end], 0, now)
		} else {
			r.extend(data[:end])
			r.emit(r.line, r.over, now)
			r.line, r.over = r.line[:0], 0
		}
		data = data[end+1:]
	}
	return lines
}

// extend adds data to the unfinished line, as far as there is room.
func (r *reader) extend(data []byte) {
	room := min(MaxLineBytes-len(r.line), len(data))
	r.line = append(r.line, data[:room]...)
	r.over += len(data) - room
}

// endLine emits a last line that has no line feed.
func (r *reader) endLine() {
	if len(r.line) > 0 || r.over > 0 {
		r.emit(r.line, r.over, time.Now())
		r.line, r.over = nil, 0
	}
}

// emit passes a line on, or drops it if the process is over its rate. The tail
// gets every line: after a crash the last ones matter, whatever came before.
func (r *reader) emit(text []byte, over int, now time.Time) {
	if over == 0 {
		text = bytes.TrimSuffix(text, []byte{'\r'})
	} else {
		r.cut.Add(1)
	}
	r.lines.Add(1)
	r.tail.add(text, over)
	if r.output == nil {
		return
	}
	if !r.rate.allow(len(text)+1, now) {
		size := int64(len(text)) + int64(over) + 1
		r.capture.droppedLines.Add(1)
		r.capture.droppedBytes.Add(size)
		r.dropped++
		r.droppedBytes += size
		if r.reportAt.IsZero() {
			r.reportAt = now.Add(dropReportEvery)
		}
		return
	}
	r.output(Line{Stream: r.stream, Text: text, Cut: over})
}

// reportIfDue reports dropped lines once dropReportEvery has passed since the
// first of them.
func (r *reader) reportIfDue() {
	if !r.reportAt.IsZero() && !time.Now().Before(r.reportAt) {
		r.report()
	}
}

// report tells output about dropped lines, if there are any.
func (r *reader) report() {
	if r.dropped == 0 {
		return
	}
	line := Line{
		Stream:       r.stream,
		Text:         fmt.Appendf(nil, "%d lines (%d bytes) dropped: more than %d KiB of output a second", r.dropped, r.droppedBytes, MaxOutputRate>>10),
		Dropped:      r.dropped,
		DroppedBytes: r.droppedBytes,
	}
	r.dropped, r.droppedBytes, r.reportAt = 0, 0, time.Time{}
	r.output(line)
}

// limiter is a token bucket of MaxOutputRate bytes that refills in one second.
// The zero value is full.
type limiter struct {
	mu    sync.Mutex
	spent float64 // bytes taken and not yet refilled; guarded by mu
	last  time.Time
}

// allow takes n bytes out of the bucket, or nothing if there are fewer.
func (l *limiter) allow(n int, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if elapsed := now.Sub(l.last); elapsed > 0 {
		l.spent = max(0, l.spent-elapsed.Seconds()*MaxOutputRate)
		l.last = now
	}
	if l.spent+float64(n) > MaxOutputRate {
		return false
	}
	l.spent += float64(n)
	return true
}
