package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// readLines returns every line and error of a reader up to the end of the stream, errors as "!text".
func readLines(t *testing.T, r io.Reader, limit int) []string {
	t.Helper()
	lines := NewLineReader(r, limit)
	var got []string
	for range 1000 {
		line, err := lines.Next()
		var size *LineSizeError
		switch {
		case err == io.EOF:
			return got
		case errors.As(err, &size):
			got = append(got, fmt.Sprintf("!%d id=%s response=%s", size.Size, size.ID, size.ResponseID))
		case err != nil:
			return append(got, "!"+err.Error())
		default:
			got = append(got, string(line))
		}
	}
	t.Fatal("the reader does not end")
	return nil
}

func TestLine_one_message_stays_one_message(t *testing.T) {
	tests := []struct {
		name  string
		input string
		want  []string
	}{
		{"nothing", "", nil},
		{"lf_and_crlf_end_a_line", "a\nb\r\nc\n", []string{"a", "b", "c"}},
		{"blank_lines_are_skipped", "\n\r\n  \t\n \r\na\n\n\n", []string{"a"}},
		{"last_line_without_newline_is_delivered", "a\nb", []string{"a", "b"}},
		{"byte_order_mark_alone_is_blank", "\ufeff\n\ufeff \r\na\n\ufeff", []string{"a"}},
		{"last_blank_without_newline_is_not_a_line", "a\n  ", []string{"a"}},
		{"cr_inside_a_line_does_not_end_it", "a\rb\n", []string{"a\rb"}},
		{"byte_order_mark_is_dropped", "\uFEFF{}\n\uFEFF{}\r\n", []string{"{}", "{}"}},
		{"nul_is_a_byte_like_any_other", "a\x00b\n", []string{"a\x00b"}},
		{"unicode_line_ends_do_not_end_a_line", "\"\u2028\u2029\u0085\"\n", []string{"\"\u2028\u2029\u0085\""}},
		{"invalid_utf8_is_handed_on_for_scan_to_refuse", "\xff\xfe\n{}\n", []string{"\xff\xfe", "{}"}},
		{"content_length_headers_are_lines", "Content-Length: 2\r\n\r\n{}\n", []string{"Content-Length: 2", "{}"}},
		{"pretty_printed_json_is_many_lines", "{\n  \"a\": 1\n}\n{}\n", []string{"{", "  \"a\": 1", "}", "{}"}},
		{"line_at_the_limit_passes", strings.Repeat("x", 32) + "\n", []string{strings.Repeat("x", 32)}},
		{"line_at_the_limit_with_crlf_passes", strings.Repeat("x", 32) + "\r\n", []string{strings.Repeat("x", 32)}},
		{"line_over_the_limit_is_reported_and_skipped", strings.Repeat("x", 33) + "\nnext\n", []string{"!33 id= response=", "next"}},
		{"last_line_over_the_limit_is_reported", strings.Repeat("x", 33), []string{"!33 id= response="}},
		{"two_lines_over_the_limit_are_two_reports", strings.Repeat("x", 40) + "\r\n" + strings.Repeat("y", 50) + "\n{}\n", []string{"!40 id= response=", "!50 id= response=", "{}"}},
	}
	for _, tt := range tests {
		for how, r := range map[string]io.Reader{
			"whole":              strings.NewReader(tt.input),
			"one_byte_at_a_time": oneByte([]byte(tt.input)),
			"end_with_the_bytes": iotest.DataErrReader(strings.NewReader(tt.input)),
		} {
			t.Run(tt.name+"/"+how, func(t *testing.T) {
				if got := readLines(t, r, 32); fmt.Sprint(got) != fmt.Sprint(tt.want) || len(got) != len(tt.want) {
					t.Errorf("got %q, want %q", got, tt.want)
				}
			})
		}
	}
}

func TestLine_sizes_at_buffer_edges_survive(t *testing.T) {
	for _, size := range []int{65_535, 65_536, 65_537, 1_048_577, DefaultMaxLineBytes} {
		long := bytes.Repeat([]byte("0123456789abcdef!"), size/17+1)[:size]
		stream := bytes.Join([][]byte{[]byte("before"), long, []byte("after"), nil}, []byte{'\n'})
		lines := NewLineReader(iotest.HalfReader(bytes.NewReader(stream)), 0)
		for i, want := range [][]byte{[]byte("before"), long, []byte("after")} {
			got, err := lines.Next()
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("size %d: line %d differs (%d bytes), %v", size, i, len(got), err)
			}
		}
		if held := cap(lines.buf); held > 2*(size+minBufferBytes) {
			t.Errorf("size %d: the reader holds %d bytes", size, held)
		}
	}
}

func TestLine_overlong_request_keeps_its_id_and_the_session_goes_on(t *testing.T) {
	const limit = 64 << 10
	fill := strings.Repeat("x", limit)
	tests := []struct {
		name string
		line string
		id   string
		resp string
	}{
		{"id_first_as_python_writes_it", `{"jsonrpc":"2.0","id":7,"method":"m","params":{"a":"` + fill + `"}}`, `7`, ``},
		{"id_last_as_typescript_writes_it", `{"method":"m","params":{"a":"` + fill + `"},"jsonrpc":"2.0","id":7}`, `7`, ``},
		{"id_in_the_middle", `{"params":{"a":"` + fill + `"},"id":"a\"b","x":"` + fill + `","method":"m"}`, `"a\"b"`, ``},
		{"id_with_spaces_around", `{ "id" : 1.0 , "method" : "m" , "params" : {"a":"` + fill + `"} }`, `1.0`, ``},
		{"only_an_inner_id", `{"jsonrpc":"2.0","method":"m","params":{"id":9,"a":"` + fill + `"}}`, ``, ``},
		{"inner_id_at_the_end", `{"jsonrpc":"2.0","method":"m","params":{"a":"` + fill + `","id":9}}`, ``, ``},
		{"id_text_inside_a_string", `{"method":"m","params":{"a":"` + fill + `\",\"id\":9}"}}`, ``, ``},
		{"two_ids", `{"id":1,"method":"m","params":{"a":"` + fill + `"},"id":2}`, ``, ``},
		{"cut_before_its_end_could_be_anywhere", `{"id":1,"method":"m","params":{"a":"` + fill + `","id":2}`, ``, ``},
		{"null_id", `{"id":null,"method":"m","params":{"a":"` + fill + `"}}`, ``, ``},
		{"object_id", `{"id":{"a":1},"method":"m","params":{"a":"` + fill + `"}}`, ``, ``},
		{"overlong_id", `{"id":"` + fill + `","method":"m"}`, ``, ``},
		{"a_response_is_told_apart", `{"jsonrpc":"2.0","id":3,"result":{"a":"` + fill + `"}}`, ``, `3`},
		{"an_error_response_too", `{"jsonrpc":"2.0","error":{"a":"` + fill + `"},"id":3}`, ``, `3`},
		{"neither", `{"id":3,"a":"` + fill + `"}`, ``, ``},
		{"array", `[{"id":3,"method":"m","a":"` + fill + `"}]`, ``, ``},
		{"two_values", `{"id":3,"method":"m"}{"a":"` + fill + `"}`, ``, ``},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			input := tt.line + "\r\n{\"ok\":1}\n"
			want := fmt.Sprint([]string{fmt.Sprintf("!%d id=%s response=%s", len(tt.line), tt.id, tt.resp), `{"ok":1}`})
			for how, r := range map[string]io.Reader{"whole": strings.NewReader(input), "one_byte_at_a_time": oneByte([]byte(input))} {
				if got := readLines(t, r, limit); fmt.Sprint(got) != want {
					t.Errorf("%s: got %.200q, want %.200q", how, got, want)
				}
			}
		})
	}
}

func TestLine_overlong_line_is_skipped_in_bounded_memory(t *testing.T) {
	const limit = 64 << 10
	endless := io.LimitReader(readerFunc(func(p []byte) (int, error) {
		for i := range p {
			p[i] = 'x'
		}
		return len(p), nil
	}), 64<<20)
	lines := NewLineReader(endless, limit)
	_, err := lines.Next()
	var size *LineSizeError
	if !errors.As(err, &size) || size.Size != 64<<20 {
		t.Fatalf("Next = %v, want a LineSizeError of 64 MiB", err)
	}
	if held := cap(lines.buf); held > 4*limit {
		t.Errorf("the reader holds %d bytes for a limit of %d", held, limit)
	}
}

func TestLine_buffered_promises_a_line_without_reading(t *testing.T) {
	reads := 0
	src := strings.NewReader("a\nb\n\n \r\n")
	lines := NewLineReader(readerFunc(func(p []byte) (int, error) { reads++; return src.Read(p) }), 0)
	if lines.Buffered() {
		t.Error("Buffered before anything was read")
	}
	if line, err := lines.Next(); string(line) != "a" || err != nil {
		t.Fatalf("Next = %q, %v", line, err)
	}
	if !lines.Buffered() {
		t.Error("not Buffered although a line waits")
	}
	if line, err := lines.Next(); string(line) != "b" || err != nil || reads != 1 {
		t.Fatalf("Next = %q, %v after %d reads", line, err, reads)
	}
	if lines.Buffered() {
		t.Error("Buffered although only blank lines wait: a caller would block before it flushes")
	}
}

func TestLine_read_error_is_returned_after_whole_lines(t *testing.T) {
	broken := errors.New("broken")
	lines := NewLineReader(io.MultiReader(strings.NewReader("a\ncut"), iotest.ErrReader(broken)), 0)
	if line, err := lines.Next(); string(line) != "a" || err != nil {
		t.Fatalf("Next = %q, %v", line, err)
	}
	for range 2 {
		if line, err := lines.Next(); line != nil || err != broken {
			t.Fatalf("Next = %q, %v; want %v", line, err, broken)
		}
	}
}
