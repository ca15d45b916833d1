package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// A frame is one envelope on a socket:
//
//	 0      1      2      3      4                       4+n
//	+------+------+------+------+-----------------------+
//	|     n, big endian, 1..limit |  n bytes: UTF-8 JSON |
//	+------+------+------+------+-----------------------+
//
// The length counts the body alone. Nothing here looks into the body, sets a deadline or closes a stream;
// the caller owns the connection.

// HeaderBytes is the size of the length that precedes each frame's body.
const HeaderBytes = 4

// DefaultMaxFrameBytes bounds a frame's body: 16 MiB, the ceiling of protocol 1. It is above the largest
// line any known MCP client accepts (10 MiB), so it is never what limits an answer.
const DefaultMaxFrameBytes = 16 << 20

// ErrEmptyFrame reports a frame that declares a length of 0. A reader cannot trust the stream after it; a
// writer has not sent it.
var ErrEmptyFrame = errors.New("empty frame")

// FrameSizeError reports a frame that declares more bytes than the limit. The body is neither allocated nor
// read, and the stream cannot be resynchronised: close the connection.
type FrameSizeError struct {
	Size  uint32 // bytes, as declared
	Limit int    // bytes
}

func (e *FrameSizeError) Error() string {
	return fmt.Sprintf("frame of %d bytes exceeds the limit of %d", e.Size, e.Limit)
}

// AppendFrame appends header and body to dst, so that both leave in one write. The caller keeps the body
// within 1..limit; see SealFrame for the checked way.
func AppendFrame(dst, body []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(body)))
	return append(dst, body...)
}

// BeginFrame appends room for a header; SealFrame fills it once the body has been appended behind it.
func BeginFrame(dst []byte) (out []byte, start int) {
	return append(dst, 0, 0, 0, 0), len(dst)
}

// SealFrame writes the length of everything behind the header at start. It returns ErrEmptyFrame or a
// *FrameSizeError, and leaves dst as it is, for a body outside 1..limit.
func SealFrame(dst []byte, start, limit int) error {
	n := len(dst) - start - HeaderBytes
	switch {
	case n == 0:
		return ErrEmptyFrame
	case n > limit || uint64(n) > math.MaxUint32:
		return &FrameSizeError{Size: uint32(min(uint64(n), math.MaxUint32)), Limit: limit}
	}
	binary.BigEndian.PutUint32(dst[start:], uint32(n))
	return nil
}

// Decoder turns chunks of any size into frames. The zero value is ready, with DefaultMaxFrameBytes.
// It is not safe for concurrent use. Its buffer grows with the bytes that arrived, by doubling, never with
// a declared length: 128 peers that each announce 16 MiB and send one byte cost 8 MiB, not 2 GiB. It
// also holds whatever Push is given until Next takes it.
type Decoder struct {
	// MaxFrameBytes is the largest body accepted; 0 means DefaultMaxFrameBytes.
	MaxFrameBytes int

	buf        []byte
	start, end int
	err        error
}

// Push appends a chunk. The bytes are copied, except after an error, when they are dropped.
func (d *Decoder) Push(chunk []byte) {
	for d.err == nil && len(chunk) > 0 {
		n := copy(d.space(), chunk)
		d.end += n
		chunk = chunk[n:]
	}
}

// Next returns the body of the next whole frame, or ok false when more bytes are needed. The body is valid
// until the next call of Push or Next. After an error (ErrEmptyFrame, FrameSizeError) every call returns
// the same error until Reset.
func (d *Decoder) Next() (body []byte, ok bool, err error) {
	size, ok, err := d.whole()
	if err != nil || !ok {
		return nil, false, err
	}
	from := d.start + HeaderBytes
	d.start = from + size
	return d.buf[from:d.start:d.start], true, nil
}

// Buffered reports whether Next would return a frame or an error without more bytes.
func (d *Decoder) Buffered() bool {
	_, ok, err := d.whole()
	return ok || err != nil
}

// Pending returns the number of bytes held that belong to an unfinished frame.
func (d *Decoder) Pending() int { return d.end - d.start }

// Reset forgets all bytes and any error, as for a new connection.
func (d *Decoder) Reset() {
	d.start, d.end, d.err = 0, 0, nil
	if len(d.buf) > keepBufferBytes {
		d.buf = nil
	}
}

// whole reports the body size of the frame at the front of the buffer, and whether all of it is there.
func (d *Decoder) whole() (size int, ok bool, err error) {
	if d.err != nil {
		return 0, false, d.err
	}
	if d.end-d.start < HeaderBytes {
		return 0, false, nil
	}
	limit := d.MaxFrameBytes
	if limit <= 0 {
		limit = DefaultMaxFrameBytes
	}
	n := binary.BigEndian.Uint32(d.buf[d.start:])
	switch {
	case n == 0:
		d.err = ErrEmptyFrame
	case uint64(n) > uint64(limit):
		d.err = &FrameSizeError{Size: n, Limit: limit}
	default:
		return int(n), d.end-d.start-HeaderBytes >= int(n), nil
	}
	return 0, false, d.err
}

// space returns free room behind the buffered bytes, at least one byte.
func (d *Decoder) space() []byte {
	d.buf, d.start, d.end = makeRoom(d.buf, d.start, d.end)
	return d.buf[d.end:]
}

// FrameReader reads frames from a stream. One goroutine at a time; it never closes the stream.
type FrameReader struct {
	r   io.Reader
	dec Decoder
}

// NewFrameReader returns a reader of frames of at most limit bytes (0 means DefaultMaxFrameBytes).
func NewFrameReader(r io.Reader, limit int) *FrameReader {
	return &FrameReader{r: r, dec: Decoder{MaxFrameBytes: limit}}
}

// Next returns the body of the next frame, valid until the next call. io.EOF is returned only for a stream
// that ends between frames, the one clean end; a stream that ends inside a header or body is
// io.ErrUnexpectedEOF. ErrEmptyFrame and FrameSizeError end the stream for good.
func (f *FrameReader) Next() ([]byte, error) {
	for empty := 0; empty < maxEmptyReads; empty++ {
		body, ok, err := f.dec.Next()
		if ok || err != nil {
			return body, err
		}
		n, err := f.r.Read(f.dec.space())
		f.dec.end += n
		switch {
		case n > 0:
			empty = -1 // an error that came with bytes comes again without
		case errors.Is(err, io.EOF) && f.dec.Pending() > 0:
			return nil, io.ErrUnexpectedEOF // only the decoder knows that the end is inside a frame
		case err != nil:
			return nil, err
		}
	}
	return nil, io.ErrNoProgress
}

// Buffered reports whether Next can answer without reading from the stream.
func (f *FrameReader) Buffered() bool { return f.dec.Buffered() }

// Unfinished returns the bytes of an unfinished frame, its header included, valid until the next call of Next.
func (f *FrameReader) Unfinished() []byte { return f.dec.buf[f.dec.start:f.dec.end] }

// Partial reports whether some bytes of an unfinished frame have arrived.
func (f *FrameReader) Partial() bool { return f.dec.Pending() > 0 }
