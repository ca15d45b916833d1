package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// A line is one envelope on a pipe: UTF-8 JSON and "\n"; "\r\n" is accepted, blank lines are skipped, and so
// is a byte order mark at the start of a line, which some shells put before what they pipe. Only "\n" ends a
// line: U+2028, U+2029 and U+0085 are characters like any other.

// DefaultMaxLineBytes bounds a line without its newline: 16 MiB, the same as a frame.
const DefaultMaxLineBytes = 16 << 20

// maxEmptyReads is how often in a row a stream may return nothing and no error before it is given up, as
// in package bufio.
const maxEmptyReads = 100

var byteOrderMark = []byte("\uFEFF")

// LineSizeError reports a line over the limit. The reader has skipped to its newline (or the end of the
// stream) and goes on with the next line.
type LineSizeError struct {
	Size       int64  // bytes, without the line end
	Limit      int    // bytes
	ID         []byte // the raw id of what looks like a request, whose sender waits for an answer; else nil
	ResponseID []byte // the raw id of what looks like a response; else nil
}

func (e *LineSizeError) Error() string {
	return fmt.Sprintf("line of %d bytes exceeds the limit of %d", e.Size, e.Limit)
}

// LineReader reads lines from a stream. One goroutine at a time; it never closes the stream. Its buffer grows
// with the bytes that arrived, by doubling, to at most twice the limit.
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
// *LineSizeError is not final. A last line without a newline is returned before io.EOF; after any other
// error of the stream, what stands before it is dropped.
func (l *LineReader) Next() ([]byte, error) {
	for {
		line, ok := l.take()
		switch {
		case ok:
		case l.err != nil:
			rest := l.rest()
			if !errors.Is(l.err, io.EOF) || len(rest) == 0 {
				return nil, l.err
			}
			line = rest
		case l.end-l.start > l.limit+1: // one byte more than the limit may be a '\r'
			return nil, l.skip()
		default:
			l.fill()
			continue
		}
		line = bytes.TrimSuffix(line, []byte{'\r'})
		if len(line) > l.limit {
			var s salvager
			s.feed(line)
			return nil, l.oversized(int64(len(line)), &s)
		}
		if !isBlank(line) {
			return bytes.TrimPrefix(line, byteOrderMark), nil
		}
	}
}

// Buffered reports whether a whole line waits that is not blank, so that Next would not read from the stream.
// It drops blank lines in front of it: a caller that flushes before it blocks must not be misled by them.
func (l *LineReader) Buffered() bool {
	for {
		i := bytes.IndexByte(l.buf[l.start+l.seen:l.end], '\n')
		if i < 0 {
			l.seen = l.end - l.start
			return false
		}
		l.seen += i
		if !isBlank(l.buf[l.start : l.start+l.seen]) {
			return true
		}
		l.start, l.seen = l.start+l.seen+1, 0
	}
}

func isBlank(line []byte) bool {
	if len(line) > 0 && line[0] > ' ' && line[0] != byteOrderMark[0] { // as nearly every line
		return false
	}
	return len(bytes.Trim(bytes.TrimPrefix(line, byteOrderMark), " \t\r")) == 0
}

// take takes the line at the front of the buffer.
func (l *LineReader) take() ([]byte, bool) {
	i := bytes.IndexByte(l.buf[l.start+l.seen:l.end], '\n')
	if i < 0 {
		l.seen = l.end - l.start
		return nil, false
	}
	stop := l.start + l.seen + i
	line := l.buf[l.start:stop:stop]
	l.start, l.seen = stop+1, 0
	return line, true
}

// rest takes what stands before the end of the stream.
func (l *LineReader) rest() []byte {
	line := l.buf[l.start:l.end:l.end]
	l.start, l.end, l.seen = 0, 0, 0
	return line
}

// skip drops the overlong line at the front of the buffer, up to its newline or the end of the stream.
func (l *LineReader) skip() error {
	var s salvager
	var size int64
	var last byte
	for {
		piece, whole := l.take()
		if !whole {
			piece = l.rest()
		}
		s.feed(piece)
		size += int64(len(piece))
		if len(piece) > 0 {
			last = piece[len(piece)-1]
		}
		if whole || l.err != nil {
			if last == '\r' {
				size--
			}
			return l.oversized(size, &s)
		}
		l.fill()
	}
}

func (l *LineReader) oversized(size int64, s *salvager) error {
	err := &LineSizeError{Size: size, Limit: l.limit}
	switch s.kind() {
	case Request:
		err.ID = s.result()
	case Response:
		err.ResponseID = s.result()
	}
	return err
}

// fill reads once, growing the buffer by doubling.
func (l *LineReader) fill() {
	l.buf, l.start, l.end = makeRoom(l.buf, l.start, l.end)
	if l.start == l.end {
		l.seen = 0
	}
	for range maxEmptyReads {
		n, err := l.r.Read(l.buf[l.end:])
		l.end += n
		l.err = err
		if n > 0 || err != nil {
			return
		}
	}
	l.err = io.ErrNoProgress
}
