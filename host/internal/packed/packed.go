// Package packed writes byte strings and numbers one after the other, each string after its length, and reads them
// back without copying. It is the form of what a start reads before its first answer: encoding/json builds its
// tables anew in every process, which for a dozen small files took longer than all the rest of the start.
//
// A packed value does not say what it holds: whoever writes it puts a number of the layout first, and keeps a
// checksum beside it. Reading hostile bytes is safe; it ends with an error and allocates nothing of its own.
package packed

import (
	"encoding/binary"
	"errors"
)

var errDamaged = errors.New("it is cut or damaged")

// AppendUint appends a number.
func AppendUint(dst []byte, n uint64) []byte { return binary.AppendUvarint(dst, n) }

// Append appends a byte string.
func Append[T ~string | ~[]byte](dst []byte, s T) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// Reader takes values in the order they were written. After a value that is not whole it returns zero values only,
// and Err says so. It is not safe for concurrent use.
type Reader struct {
	rest []byte
	bad  bool
}

// NewReader reads data, which must not be changed while what was read from it is in use.
func NewReader(data []byte) *Reader { return &Reader{rest: data} }

// Uint reads a number.
func (r *Reader) Uint() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 {
		r.rest, r.bad = nil, true
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

// Bytes reads a byte string: a part of the data, nil if it is empty.
func (r *Reader) Bytes() []byte {
	n := r.Uint()
	if n > uint64(len(r.rest)) {
		r.rest, r.bad = nil, true
		return nil
	}
	s := r.rest[:n:n]
	r.rest = r.rest[n:]
	if n == 0 {
		return nil
	}
	return s
}

// String reads a byte string as a string.
func (r *Reader) String() string { return string(r.Bytes()) }

// Count reads the number of elements that follow, each of at least one byte: never more than there are bytes left.
func (r *Reader) Count() int {
	n := r.Uint()
	if n > uint64(len(r.rest)) {
		r.rest, r.bad = nil, true
		return 0
	}
	return int(n)
}

// Err reports that a value was not whole, or that something is left after the last one.
func (r *Reader) Err() error {
	if r.bad || len(r.rest) > 0 {
		return errDamaged
	}
	return nil
}
