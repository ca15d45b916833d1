package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// framed returns the frames of bodies.
func framed(bodies ...string) []byte {
	var out []byte
	for _, b := range bodies {
		out = AppendFrame(out, []byte(b))
	}
	return out
}

// oneByte feeds a reader byte by byte.
func oneByte(data []byte) io.Reader { return iotest.OneByteReader(bytes.NewReader(data)) }

func TestSeed_B11_frames_from_a_stream(t *testing.T) {
	header := func(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
	tooLarge := &FrameSizeError{Size: 17, Limit: 16}
	tests := []struct {
		name   string
		input  []byte
		bodies []string
		err    error
	}{
		{"nothing_is_a_clean_end", nil, nil, io.EOF},
		{"one_frame_then_clean_end", framed("{}"), []string{"{}"}, io.EOF},
		{"frames_back_to_back_keep_their_order", framed("a", "bb", "ccc"), []string{"a", "bb", "ccc"}, io.EOF},
		{"cut_inside_header_is_not_a_clean_end", []byte{0, 0}, nil, io.ErrUnexpectedEOF},
		{"cut_after_header_is_not_a_clean_end", header(5), nil, io.ErrUnexpectedEOF},
		{"cut_inside_body_is_not_a_clean_end", append(header(5), "ab"...), nil, io.ErrUnexpectedEOF},
		{"cut_in_the_second_frame_delivers_the_first", append(framed("ok"), 0, 0, 0), []string{"ok"}, io.ErrUnexpectedEOF},
		{"length_zero_is_a_violation", append(framed("ok"), header(0)...), []string{"ok"}, ErrEmptyFrame},
		{"body_at_the_limit_passes", framed(strings.Repeat("x", 16)), []string{strings.Repeat("x", 16)}, io.EOF},
		{"length_over_the_limit_is_a_violation", header(17), nil, tooLarge},
		{"largest_length_is_a_violation", header(1<<32 - 1), nil, &FrameSizeError{Size: 1<<32 - 1, Limit: 16}},
		{"text_instead_of_a_length_is_a_violation", []byte("Content-Length: 5\r\n"), nil, &FrameSizeError{Size: 0x436f6e74, Limit: 16}},
	}
	for _, tt := range tests {
		for how, reader := range map[string]io.Reader{"whole": bytes.NewReader(tt.input), "one_byte_at_a_time": oneByte(tt.input)} {
			t.Run(tt.name+"/"+how, func(t *testing.T) {
				frames := NewFrameReader(reader, 16)
				for _, want := range tt.bodies {
					got, err := frames.Next()
					if err != nil || string(got) != want {
						t.Fatalf("Next = %q, %v; want %q", got, err, want)
					}
				}
				for range 2 { // the end is final
					body, err := frames.Next()
					if body != nil || !sameError(err, tt.err) {
						t.Fatalf("Next at the end = %q, %v; want error %v", body, err, tt.err)
					}
				}
			})
		}
	}
}

func sameError(got, want error) bool {
	var a, b *FrameSizeError
	if errors.As(want, &a) {
		return errors.As(got, &b) && *a == *b
	}
	return got == want // io.EOF must come back bare
}

func TestSeed_B11_bodies_at_buffer_edges_survive(t *testing.T) {
	for _, size := range []int{1, 65_531, 65_532, 65_533, 65_535, 65_536, 65_537, 1<<20 - 4, 1 << 20, 1_048_577, DefaultMaxFrameBytes} {
		body := bytes.Repeat([]byte("0123456789abcdef!"), size/17+1)[:size]
		stream := AppendFrame(AppendFrame(framed("before"), body), []byte("after"))
		frames := NewFrameReader(iotest.HalfReader(bytes.NewReader(stream)), 0)
		for i, want := range [][]byte{[]byte("before"), body, []byte("after")} {
			got, err := frames.Next()
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("size %d: frame %d differs (%d bytes), %v", size, i, len(got), err)
			}
		}
		if _, err := frames.Next(); err != io.EOF {
			t.Fatalf("size %d: end is %v", size, err)
		}
	}
	over := binary.BigEndian.AppendUint32(nil, DefaultMaxFrameBytes+1)
	var size *FrameSizeError
	if _, err := NewFrameReader(bytes.NewReader(over), 0).Next(); !errors.As(err, &size) {
		t.Fatalf("one byte over 16 MiB: %v", err)
	}
}

func TestSeed_B11_nothing_is_allocated_for_a_declared_length(t *testing.T) {
	for _, n := range []uint32{DefaultMaxFrameBytes, DefaultMaxFrameBytes + 1, 1<<32 - 1} {
		stream := append(binary.BigEndian.AppendUint32(nil, n), 'x')
		frames := NewFrameReader(bytes.NewReader(stream), 0)
		if _, err := frames.Next(); err == nil {
			t.Fatalf("a frame of %d declared bytes and one real one was returned", n)
		}
		if held := cap(frames.dec.buf); held > minBufferBytes {
			t.Errorf("declaring %d bytes holds %d bytes, want at most %d", n, held, minBufferBytes)
		}
	}
}

func TestSeed_B11_decoder_fed_by_chunks(t *testing.T) {
	stream := framed("first", strings.Repeat("y", 100_000), "last")
	for _, chunk := range []int{1, 3, 4096, len(stream)} {
		var d Decoder
		var got []string
		for rest := stream; len(rest) > 0; {
			n := min(chunk, len(rest))
			d.Push(rest[:n])
			rest = rest[n:]
			for {
				buffered := d.Buffered()
				body, ok, err := d.Next()
				if err != nil || ok != buffered {
					t.Fatalf("chunk %d: Buffered %v, Next %v, %v", chunk, buffered, ok, err)
				}
				if !ok {
					break
				}
				got = append(got, string(body))
			}
		}
		if len(got) != 3 || got[0] != "first" || len(got[1]) != 100_000 || got[2] != "last" || d.Pending() != 0 {
			t.Errorf("chunk %d: %d frames, %d bytes pending", chunk, len(got), d.Pending())
		}
	}
}

func TestSeed_B11_reset_forgets_bytes_and_errors(t *testing.T) {
	var d Decoder
	d.Push([]byte{0, 0, 0, 0})
	if _, _, err := d.Next(); err != ErrEmptyFrame {
		t.Fatalf("Next = %v, want ErrEmptyFrame", err)
	}
	d.Push(framed("lost"))
	if _, ok, err := d.Next(); ok || err != ErrEmptyFrame {
		t.Fatalf("after the error, Next = %v, %v; want the same error", ok, err)
	}
	d.Reset()
	d.Push(framed("again"))
	if body, ok, err := d.Next(); !ok || err != nil || string(body) != "again" {
		t.Fatalf("after Reset, Next = %q, %v, %v", body, ok, err)
	}
}

func TestDecoder_gives_back_the_buffer_of_a_rare_large_frame(t *testing.T) {
	large := make([]byte, 4<<20)
	frames := NewFrameReader(bytes.NewReader(append(AppendFrame(nil, large), framed("small", "small")...)), 0)
	for range 3 {
		if _, err := frames.Next(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := frames.Next(); err != io.EOF {
		t.Fatal(err)
	}
	if held := cap(frames.dec.buf); held > keepBufferBytes {
		t.Errorf("an empty reader holds %d bytes", held)
	}
}

func TestFrame_reader_gives_up_on_a_stream_that_never_moves(t *testing.T) {
	stuck := readerFunc(func([]byte) (int, error) { return 0, nil })
	if _, err := NewFrameReader(stuck, 0).Next(); err != io.ErrNoProgress {
		t.Errorf("Next = %v, want io.ErrNoProgress", err)
	}
	if _, err := NewLineReader(stuck, 0).Next(); err != io.ErrNoProgress {
		t.Errorf("line: Next = %v, want io.ErrNoProgress", err)
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestFrame_error_that_comes_with_bytes_comes_after_the_frame(t *testing.T) {
	broken := errors.New("broken")
	frames := NewFrameReader(iotest.DataErrReader(io.MultiReader(bytes.NewReader(framed("ok")), iotest.ErrReader(broken))), 0)
	if body, err := frames.Next(); string(body) != "ok" || err != nil {
		t.Fatalf("Next = %q, %v", body, err)
	}
	if _, err := frames.Next(); err != broken {
		t.Fatalf("Next = %v, want %v", err, broken)
	}
}

func TestSealFrame(t *testing.T) {
	tests := []struct {
		name  string
		body  string
		limit int
		want  error
	}{
		{"body_at_the_limit_is_sealed", "abcd", 4, nil},
		{"body_over_the_limit_is_refused", "abcde", 4, &FrameSizeError{Size: 5, Limit: 4}},
		{"empty_body_is_refused", "", 4, ErrEmptyFrame},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			out, start := BeginFrame([]byte("before"))
			out = append(out, tt.body...)
			if err := SealFrame(out, start, tt.limit); !sameError(err, tt.want) {
				t.Fatalf("SealFrame = %v, want %v", err, tt.want)
			}
			want := "before" + string(framed(tt.body))
			if tt.want != nil {
				want = "before\x00\x00\x00\x00" + tt.body
			}
			if string(out) != want {
				t.Errorf("bytes %q, want %q", out, want)
			}
		})
	}
}
