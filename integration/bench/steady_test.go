//go:build linux

package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// fakeHost is the other end of a client's pipes.
func fakeHost(t *testing.T) (s *steady, requests *bufio.Scanner, answers *os.File) {
	t.Helper()
	var in, out [2]int
	if err := unix.Pipe2(in[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	if err := unix.Pipe2(out[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	read := os.NewFile(uintptr(in[0]), "stdin")
	t.Cleanup(func() { read.Close(); unix.Close(in[1]); unix.Close(out[0]) })
	return newSteady(newClient(&process{in: in[1], out: out[0]})), bufio.NewScanner(read), os.NewFile(uintptr(out[1]), "stdout")
}

// Answers reach those who asked, in whatever order they come; an error is an answer; the end of the host is one too.
func TestSteady(t *testing.T) {
	t.Parallel()
	s, requests, answers := fakeHost(t)
	got := make(map[string]string)
	var mu sync.Mutex
	var wg sync.WaitGroup
	ask := func(name string) {
		wg.Add(1)
		err := s.send(plain(name)(10), func(b []byte) {
			mu.Lock()
			defer mu.Unlock()
			got[name] = fmt.Sprintf("%v %s", hasResult(b), b)
			wg.Done()
		})
		if err != nil {
			t.Error(err)
		}
	}
	for i, name := range []string{"a", "b", "c", "d"} {
		ask(name)
		if !requests.Scan() || !strings.Contains(requests.Text(), fmt.Sprintf(`"id":%d,"method":%q`, i+1, name)) {
			t.Fatalf("the host reads %q", requests.Text())
		}
	}
	fmt.Fprintln(answers, `{"jsonrpc":"2.0","id":3,"error":{"code":-32003,"message":"gone"}}`)
	fmt.Fprintln(answers, `{"jsonrpc":"2.0","method":"notifications/message","params":{"id":1}}`)
	fmt.Fprintln(answers, `{"jsonrpc":"2.0","id":2,"result":"second"}`)
	fmt.Fprintln(answers, `{"jsonrpc":"2.0","id":1,"result":"first"}`)
	answers.Close()
	wg.Wait()
	for name, want := range map[string]string{"a": "true ", "b": "true ", "c": "false ", "d": "false "} {
		if !strings.HasPrefix(got[name], want) {
			t.Errorf("%s got %q", name, got[name])
		}
	}
	if !strings.Contains(got["a"], "first") || !strings.Contains(got["b"], "second") || got["d"] != "false " {
		t.Errorf("%v", got)
	}
	if err := s.send(plain("e")(10), nil); err == nil || !strings.Contains(err.Error(), "has gone") {
		t.Errorf("a call after the end: %v", err)
	}
}
