package process

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fakeSource is an output pipe in memory.
type fakeSource struct {
	net.Conn
	left []byte // what ReadNow still finds
}

func (s *fakeSource) ReadNow(buf []byte) (int, error) {
	if len(s.left) == 0 {
		return 0, os.ErrDeadlineExceeded
	}
	n := copy(buf, s.left)
	s.left = s.left[n:]
	return n, nil
}

func (s *fakeSource) Rest(wait func()) { wait() }

// captured runs one stream through a capture and returns copies of its lines.
func captured(t *testing.T, write func(io.Writer)) ([]Line, *capture) {
	t.Helper()
	var lines []Line
	c := newCapture(func(line Line) {
		line.Text = bytes.Clone(line.Text)
		lines = append(lines, line)
	})
	child, host := net.Pipe()
	c.start(Stderr, &fakeSource{Conn: host})
	write(child)
	_ = child.Close()
	c.readers.Wait()
	return lines, c
}

func TestCaptureSplitsLines(t *testing.T) {
	text := "one\ntwo\r\n\n\x00\xff\x1b[31m\nlone\rreturn\nlast"
	want := []string{"one", "two", "", "\x00\xff\x1b[31m", "lone\rreturn", "last"}
	writers := map[string]func(io.Writer){
		"at_once":         func(w io.Writer) { _, _ = io.WriteString(w, text) },
		"byte_after_byte": func(w io.Writer) { writeInPieces(w, text, func() int { return 1 }) },
		"odd_pieces":      func(w io.Writer) { writeInPieces(w, text, func() int { return 1 + rand.IntN(7) }) },
	}
	for name, write := range writers {
		t.Run(name, func(t *testing.T) {
			lines, _ := captured(t, write)
			var got []string
			for _, line := range lines {
				got = append(got, string(line.Text))
				if line.Stream != Stderr || line.Cut != 0 || line.Dropped != 0 {
					t.Errorf("unexpected attributes: %+v", line)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

func writeInPieces(w io.Writer, text string, size func() int) {
	for len(text) > 0 {
		n := min(size(), len(text))
		_, _ = io.WriteString(w, text[:n])
		text = text[n:]
	}
}

func TestCaptureCutsLongLines(t *testing.T) {
	for _, length := range []int{MaxLineBytes - 1, MaxLineBytes, MaxLineBytes + 1, readBytes, readBytes + 1, 1<<20 + 1} {
		long := strings.Repeat("x", length)
		for _, end := range []string{"\n", ""} {
			lines, c := captured(t, func(w io.Writer) { _, _ = io.WriteString(w, "before\n"+long+end) })
			if len(lines) != 2 {
				t.Fatalf("%d bytes: %d lines", length, len(lines))
			}
			kept := min(length, MaxLineBytes)
			if len(lines[1].Text) != kept || lines[1].Cut != length-kept {
				t.Errorf("%d bytes: %d kept and %d cut, want %d and %d", length, len(lines[1].Text), lines[1].Cut, kept, length-kept)
			}
			if stats := c.stats(); stats.Lines != 2 || (stats.CutLines == 1) != (length > MaxLineBytes) || stats.Bytes != int64(7+length+len(end)) {
				t.Errorf("%d bytes: counted %+v", length, stats)
			}
		}
	}
}

// tally counts what a capture passes on.
type tally struct {
	mu              sync.Mutex
	begin           time.Time
	passed, dropped int
	bytes           int64           // of the dropped lines
	reports         []time.Duration // when they came
}

func (c *tally) add(l Line) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.Dropped == 0 {
		c.passed++
		return
	}
	c.dropped += l.Dropped
	c.bytes += l.DroppedBytes
	c.reports = append(c.reports, time.Since(c.begin))
}

func (c *tally) get() (passed, dropped int, bytes int64, reports []time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.passed, c.dropped, c.bytes, slices.Clone(c.reports)
}

// pass lets the bubble's time go by.
func pass(d time.Duration) {
	<-time.NewTimer(d).C
	synctest.Wait()
}

func TestCaptureRateDropsAndReportsOncePerSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const allowed = MaxOutputRate >> 10
		line := []byte(strings.Repeat("x", 1023) + "\n") // 1 KiB
		count := &tally{begin: time.Now()}
		c := newCapture(count.add)
		child, host := net.Pipe()
		c.start(Stderr, &fakeSource{Conn: host})
		// 1,000 lines at once: a second's worth passes, the rest does not.
		for range 1000 {
			if _, err := child.Write(line); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if passed, dropped, _, _ := count.get(); passed != allowed || dropped != 0 {
			t.Errorf("%d lines passed and %d reported dropped, want %d and 0", passed, dropped, allowed)
		}
		// Nothing more is printed, the report comes all the same.
		pass(dropReportEvery)
		if _, dropped, bytes, reports := count.get(); dropped != 1000-allowed || bytes != int64(dropped)<<10 || !slices.Equal(reports, []time.Duration{time.Second}) {
			t.Errorf("%d lines of %d bytes dropped in reports at %v, want %d at 1s", dropped, bytes, reports, 1000-allowed)
		}
		// The allowance is back.
		_, _ = child.Write(line)
		synctest.Wait()
		if passed, _, _, _ := count.get(); passed != allowed+1 {
			t.Error("a line after a quiet second was dropped")
		}
		// A flood over three seconds has one report a second and one at the end.
		for range 3000 {
			_, _ = child.Write(line)
			pass(time.Millisecond)
		}
		_ = child.Close()
		c.readers.Wait()
		passed, dropped, _, reports := count.get()
		if len(reports) != 4 {
			t.Errorf("reports at %v, want the first, one a second and a last one", reports)
		}
		if stats := c.stats(); stats.Lines != 4001 || int(stats.DroppedLines) != dropped || passed+dropped != 4001 {
			t.Errorf("counted %+v, passed %d, dropped %d", stats, passed, dropped)
		}
	})
}

func TestCaptureFinishTakesWhatIsThereAndDoesNotWaitForEOF(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		c := newCapture(func(l Line) { got = append(got, string(l.Text)) })
		child, host := net.Pipe() // child stays open, as with a grandchild
		c.start(Stdout, &fakeSource{Conn: host, left: []byte("then\nlast words")})
		_, _ = io.WriteString(child, "first\nand ")
		synctest.Wait()
		c.finish()
		if want := []string{"first", "and then", "last words"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if _, err := child.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("the pipe is still open: %v", err)
		}
	})
}

func TestCaptureFinishDoesNotFollowAnEndlessWriter(t *testing.T) {
	c := newCapture(nil)
	child, host := net.Pipe()
	defer child.Close()
	c.start(Stdout, &fakeSource{Conn: host, left: make([]byte, 16*maxDrainBytes)})
	c.finish()
	if read := c.stats().Bytes; read < maxDrainBytes || read > maxDrainBytes+readBytes {
		t.Errorf("read %d bytes, want about %d", read, maxDrainBytes)
	}
}

func TestTailKeepsTheLastLines(t *testing.T) {
	var kept tail
	if lines := kept.lines(); len(lines) != 0 {
		t.Errorf("empty tail has %q", lines)
	}
	for range 5000 {
		kept.add([]byte(strings.Repeat("x", 99)), 0)
	}
	kept.add([]byte("goodbye\x1b[0m"), 0)
	kept.add([]byte("long"), 12)
	lines := kept.lines()
	size := 0
	for _, line := range lines {
		size += len(line) + 1
	}
	if size < TailBytes-200 || size > TailBytes+200 {
		t.Errorf("%d bytes kept", size)
	}
	if end := lines[len(lines)-2:]; !slices.Equal(end, []string{`goodbye\x1b[0m`, "long [12 bytes cut]"}) {
		t.Errorf("ends with %q", end)
	}
	if len(lines[0]) != 99 {
		t.Errorf("begins with a part of a line: %q", lines[0])
	}
	if cap(kept.buf) > 4*TailBytes {
		t.Errorf("buffer of %d bytes", cap(kept.buf))
	}
}

func TestTailCutExactlyBetweenLines(t *testing.T) {
	buf := append(bytes.Repeat([]byte("y"), 10), '\n')
	last := append(bytes.Repeat([]byte("z"), TailBytes-1), '\n')
	if got := lastLines(append(buf, last...)); !bytes.Equal(got, last) {
		t.Errorf("%d bytes kept of a last line of %d", len(got), len(last))
	}
}
