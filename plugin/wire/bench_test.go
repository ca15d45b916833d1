package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// benchBodies returns tools/call envelopes of about size bytes: structured as most results are, plain text,
// and text outside ASCII.
func benchBodies(size int) map[string][]byte {
	head := `{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"name":"notes__search","arguments":`
	row := `{"path":"a/b.md","line":12,"score":0.75,"tags":["x","y"],"open":true},`
	structured := "[" + strings.Repeat(row, max(1, (size-len(head)-4)/len(row)))
	fill := max(1, size-len(head)-4)
	return map[string][]byte{
		"structured": []byte(head + structured[:len(structured)-1] + "]}}"),
		"prose":      []byte(head + `"` + strings.Repeat(`The build of 1,204 packages took 38.2 s; three tests were skipped, none failed.\n`, fill/81+1) + `"}}`),
		"text":       []byte(head + `"` + strings.Repeat("lorem ipsum ", fill/12+1) + `"}}`),
		"cjk":        []byte(head + `"` + strings.Repeat("漢字かな", fill/12+1) + `"}}`),
	}
}

func BenchmarkScan(b *testing.B) {
	parsers := []struct {
		name string
		run  func(data []byte) bool
	}{
		{"wire", func() func(data []byte) bool {
			var env Envelope
			return func(data []byte) bool { return Scan(data, &env) == nil }
		}()},
		{"jsontext", func() func(data []byte) bool {
			var in bytes.Buffer
			dec := jsontext.NewDecoder(&in, jsontext.AllowDuplicateNames(true))
			return func(data []byte) bool {
				in.Reset()
				in.Write(data)
				dec.Reset(&in, jsontext.AllowDuplicateNames(true))
				return dec.SkipValue() == nil
			}
		}()},
		{"encoding_json_valid", json.Valid},
	}
	for _, size := range []int{100, 4 << 10, 60 << 10, 1 << 20} {
		for _, kind := range []string{"structured", "text", "cjk", "prose"} {
			body := benchBodies(size)[kind]
			for _, p := range parsers {
				b.Run(fmt.Sprintf("%s/%dB/%s", kind, size, p.name), func(b *testing.B) {
					b.SetBytes(int64(len(body)))
					b.ReportAllocs()
					for b.Loop() {
						if !p.run(body) {
							b.Fatal("the body is refused")
						}
					}
				})
			}
		}
	}
}
