//go:build linux || darwin

package process

import (
	"bytes"
	"os"
	"testing"
)

// BenchmarkStart is from Start to the first output of the plugin and its end,
// with and without a guard between.
func BenchmarkStart(b *testing.B) {
	for _, mode := range modes {
		b.Run(mode, func(b *testing.B) {
			options := Options{}
			if mode == "guard" {
				options.Guard = guardArgv()
			}
			s := NewSpawner(options)
			defer s.Close()
			for b.Loop() {
				p, err := s.Start(b.Context(), Spec{Plugin: "test", Path: "/bin/echo", Args: []string{"ready"}})
				if err != nil {
					b.Fatal(err)
				}
				<-p.Exited()
				p.Stop(patient)
			}
		})
	}
}

// BenchmarkCapture is the cost of reading a flood of lines that are dropped.
func BenchmarkCapture(b *testing.B) {
	block := bytes.Repeat([]byte("a line of a usual length, as loggers print them, with a few fields k=v\n"), 1000)
	r, w, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	c := newCapture(func(Line) {})
	c.hurry()
	c.start(Stderr, &pipeSource{file: r})
	b.SetBytes(int64(len(block)))
	for b.Loop() {
		if _, err := w.Write(block); err != nil {
			b.Fatal(err)
		}
	}
	_ = w.Close()
	c.readers.Wait()
}

// BenchmarkParseLine reads one record of hclog.
func BenchmarkParseLine(b *testing.B) {
	text := []byte(`{"@level":"warn","@message":"disk is slow","@module":"notes.index","@timestamp":"2026-03-04T05:06:07.123456Z","ms":12,"path":"/a"}`)
	for b.Loop() {
		if _, ok := ParseLine(text); !ok {
			b.Fatal("not recognised")
		}
	}
}
