//go:build linux

package main

import (
	"bytes"
	"encoding/binary"
	"os"
)

// stream cuts a byte stream into messages. It keeps what is incomplete.
type stream struct {
	fd         int
	buf        []byte
	start, end int
}

// fill reads once and reports whether there was anything.
func (s *stream) fill() bool {
	if s.start == s.end {
		s.start, s.end = 0, 0
	}
	if s.end == len(s.buf) {
		next := s.buf
		if s.start == 0 || s.start < len(s.buf)/2 {
			next = make([]byte, max(64<<10, 2*len(s.buf)))
		}
		s.end = copy(next, s.buf[s.start:s.end])
		s.buf, s.start = next, 0
	}
	n := read(s.fd, s.buf[s.end:])
	s.end += n
	return n > 0
}

// line returns the next line that is whole.
func (s *stream) line() ([]byte, bool) {
	i := bytes.IndexByte(s.buf[s.start:s.end], '\n')
	if i < 0 {
		return nil, false
	}
	line := s.buf[s.start : s.start+i]
	s.start += i + 1
	return line, true
}

// frame returns the body of the next frame that is whole.
func (s *stream) frame() ([]byte, bool) {
	if s.end-s.start < 4 {
		return nil, false
	}
	n := int(binary.BigEndian.Uint32(s.buf[s.start:]))
	if s.end-s.start-4 < n {
		return nil, false
	}
	body := s.buf[s.start+4 : s.start+4+n]
	s.start += 4 + n
	return body, true
}

// serveLines answers lines until the input ends: all that are at hand in one write.
func serveLines(in, out int) {
	s := &stream{fd: in}
	var dst []byte
	for s.fill() {
		for line, ok := s.line(); ok; line, ok = s.line() {
			if before := len(dst); len(appendAnswer(&dst, line)) > before {
				dst = append(dst, '\n')
			}
		}
		if len(dst) > 0 {
			write(out, dst)
			dst = dst[:0]
		}
	}
}

// servePlugin is protocol 1 by hand. It takes name from the environment, and asks for no acks.
func servePlugin(fd int) {
	ready := `{"jsonrpc":"2.0","method":"sox/ready","params":{"protocol":{"min":1,"max":1},"name":"` + os.Getenv("SOX_PLUGIN_NAME") +
		`","version":"1.0.0","mcp":["2025-11-25"],"methods":["` + os.Getenv("SOX_PLUGIN_NAME") + `.*"],"capabilities":{},"limits":{}}}`
	write(fd, append(binary.BigEndian.AppendUint32(nil, uint32(len(ready))), ready...))
	s := &stream{fd: fd}
	var dst []byte
	for s.fill() {
		for body, ok := s.frame(); ok; body, ok = s.frame() {
			if bytes.HasPrefix(after(body, `"method":`), []byte(`"sox/shutdown"`)) {
				return
			}
			start := len(dst)
			dst = append(dst, 0, 0, 0, 0)
			if len(appendAnswer(&dst, body)) == start+4 {
				dst = dst[:start]
				continue
			}
			binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start-4))
		}
		if len(dst) > 0 {
			write(fd, dst)
			dst = dst[:0]
		}
	}
}
