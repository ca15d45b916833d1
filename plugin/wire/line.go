package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// A line is one envelope on a pipe: UTF-8 JSON and "\n"; "\r\n" is accepted, blank lines are skipped.

// DefaultMaxLineBytes bounds a line without its newline: 16 MiB, the same as a frame.
const DefaultMaxLineBytes = 16 << 20

// salvageBytes is how much of an overlong line is kept at either end to find its id: 4 KiB holds every
// id the gateway accepts together with the members around it.
const salvageBytes = 4 << 10

// LineSizeError reports a line over the limit. The reader has skipped to its newline (or the end of the
// stream) and goes on with the next line.
type LineSizeError struct {
	Size  int64  // bytes, without the newline
	Limit int    // bytes
	ID    []byte // the raw id if it could be found at either end of the line, else nil
}

func (e *LineSizeError) Error() string {
	return fmt.Sprintf("line of %d bytes exceeds the limit of %d", e.Size, e.Limit)
}

// LineReader reads lines from a stream. One goroutine at a time; it never closes the stream.
type LineReader struct {
	r          io.Reader
	limit      int
	buf        []byte
	start, end int
	seen       int // bytes from start already searched for a newline
	err        error
}

// NewLineReader returns a reader of lines of at most limit bytes (0 means DefaultMaxLineBytes).
func NewLineReader(r io.Reader, limit int) *LineReader {
	if limit <= 0 {
		limit = DefaultMaxLineBytes
	}
	return &LineReader{r: r, limit: limit}
}

// Next returns the next line that is not blank, without its line end, valid until the next call. A
// LineSizeError is not final. A last line without a newline is returned before io.EOF.
func (l *LineReader) Next() ([]byte, error) {
	for {
		line, ok := l.buffered()
		if !ok {
			if l.err != nil {
				return l.last()
			}
			if l.end-l.start > l.limit+1 { // one more byte for a '\r'
				return nil, l.skip()
			}
			l.fill()
			continue
		}
		line = bytes.TrimSuffix(line, []byte{'\r'})
		if len(line) > l.limit {
			return nil, &LineSizeError{Size: int64(len(line)), Limit: l.limit, ID: SalvageID(line, line)}
		}
		if len(bytes.TrimLeft(line, " \t")) > 0 {
			return line, nil
		}
	}
}

// Buffered reports whether a whole line waits, so that Next would not read from the stream.
func (l *LineReader) Buffered() bool {
	return bytes.IndexByte(l.buf[l.start+l.seen:l.end], '\n') >= 0
}

// buffered takes the line at the front of the buffer.
func (l *LineReader) buffered() ([]byte, bool) {
	i := bytes.IndexByte(l.buf[l.start+l.seen:l.end], '\n')
	if i < 0 {
		l.seen = l.end - l.start
		return nil, false
	}
	stop := l.start + l.seen + i
	line := l.buf[l.start:stop]
	l.start, l.seen = stop+1, 0
	return line, true
}

// last returns what stands before the end of the stream, once, and then the stream's error.
func (l *LineReader) last() ([]byte, error) {
	line := bytes.TrimSuffix(l.buf[l.start:l.end], []byte{'\r'})
	l.start, l.end, l.seen = 0, 0, 0
	if len(line) > l.limit {
		return nil, &LineSizeError{Size: int64(len(line)), Limit: l.limit, ID: SalvageID(line, line)}
	}
	if len(bytes.TrimLeft(line, " \t")) > 0 && errors.Is(l.err, io.EOF) {
		return line, nil
	}
	return nil, l.err
}

// skip drops the overlong line at the front of the buffer, keeping salvageBytes of either end.
func (l *LineReader) skip() error {
	head := bytes.Clone(l.buf[l.start : l.start+min(salvageBytes, l.end-l.start)])
	tail := bytes.Clone(l.buf[max(l.start, l.end-salvageBytes):l.end])
	size := int64(l.end - l.start)
	l.start, l.end, l.seen = 0, 0, 0
	for l.err == nil {
		l.fill()
		line, whole := l.buffered()
		if !whole {
			line = l.buf[l.start:l.end]
			l.start, l.end, l.seen = 0, 0, 0
		}
		size += int64(len(line))
		tail = append(tail, line[max(0, len(line)-salvageBytes):]...)
		tail = tail[max(0, len(tail)-salvageBytes):]
		if whole {
			break
		}
	}
	if bytes.HasSuffix(tail, []byte{'\r'}) {
		tail, size = tail[:len(tail)-1], size-1
	}
	return &LineSizeError{Size: size, Limit: l.limit, ID: SalvageID(head, tail)}
}

// fill reads once, growing the buffer by doubling up to the limit.
func (l *LineReader) fill() {
	if l.start == l.end {
		l.start, l.end, l.seen = 0, 0, 0
		if cap(l.buf) > keepBufferBytes {
			l.buf = nil
		}
	}
	if l.end == len(l.buf) {
		held := l.end - l.start
		if l.start >= len(l.buf)/2 && l.start > 0 {
			copy(l.buf, l.buf[l.start:l.end])
		} else {
			grown := make([]byte, max(minBufferBytes, 2*len(l.buf)))
			copy(grown, l.buf[l.start:l.end])
			l.buf = grown
		}
		l.start, l.end = 0, held
	}
	n, err := l.r.Read(l.buf[l.end:])
	l.end += n
	l.err = err
}
