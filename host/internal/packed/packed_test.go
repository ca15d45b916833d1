package packed_test

import (
	"bytes"
	"math"
	"testing"

	"github.com/sox-host/sox-host/host/internal/packed"
)

func TestRoundTrip(t *testing.T) {
	data := packed.AppendUint(nil, math.MaxUint64)
	data = packed.Append(data, "")
	data = packed.Append(data, []byte("two words"))
	data = packed.AppendUint(data, 2)
	data = packed.Append(data, "a")
	data = packed.Append(data, "b")

	r := packed.NewReader(data)
	if n := r.Uint(); n != math.MaxUint64 {
		t.Errorf("number %d", n)
	}
	if s := r.Bytes(); s != nil {
		t.Errorf("empty string %q", s)
	}
	if s := r.String(); s != "two words" {
		t.Errorf("string %q", s)
	}
	if n := r.Count(); n != 2 {
		t.Errorf("count %d", n)
	}
	if a, b := r.String(), r.String(); a != "a" || b != "b" {
		t.Errorf("elements %q, %q", a, b)
	}
	if err := r.Err(); err != nil {
		t.Error(err)
	}
	if n, s := r.Uint(), r.Bytes(); n != 0 || s != nil || r.Err() == nil {
		t.Errorf("after the end: %d, %q, %v", n, s, r.Err())
	}
}

// Every cut of a value is an error, and so is a byte too many.
func TestCut(t *testing.T) {
	whole := packed.Append(packed.Append(packed.AppendUint(nil, 300), "name"), "value")
	read := func(data []byte) error {
		r := packed.NewReader(data)
		r.Uint()
		r.Bytes()
		r.Bytes()
		return r.Err()
	}
	if err := read(whole); err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		if read(whole[:n]) == nil {
			t.Errorf("cut after %d of %d bytes: no error", n, len(whole))
		}
	}
	if read(append(bytes.Clone(whole), 0)) == nil {
		t.Error("a byte too many: no error")
	}
}

// A length that promises more than there is must not be believed, least of all by who allocates for it.
func TestGreedyLengths(t *testing.T) {
	r := packed.NewReader(packed.AppendUint(nil, 1<<62))
	if n := r.Count(); n != 0 || r.Err() == nil {
		t.Errorf("count %d, error %v", n, r.Err())
	}
	r = packed.NewReader(append(packed.AppendUint(nil, math.MaxUint64), "short"...))
	if s := r.Bytes(); s != nil || r.Err() == nil {
		t.Errorf("bytes %q, error %v", s, r.Err())
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte{0})
	f.Add(packed.Append(packed.AppendUint(nil, 3), "abc"))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Fuzz(func(t *testing.T, data []byte) {
		r := packed.NewReader(data)
		total := 0
		for range r.Count() {
			total += len(r.Bytes())
		}
		if total > len(data) {
			t.Errorf("%d bytes read of %d", total, len(data))
		}
	})
}
