//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// process is one measured program with its pipes. Reads and writes on in and out block: Go's poller would add
// its own calls to every round trip.
type process struct {
	cmd     *exec.Cmd
	in, out int // our ends of its stdin and stdout
	exited  chan struct{}
}

// start runs a program. extra become its descriptors 3 and up, and are closed here.
func start(env []string, extra []*os.File, path string, args ...string) (*process, error) {
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.ExtraFiles, cmd.Stderr = extra, os.Stderr
	p, err := startCommand(cmd)
	for _, f := range extra {
		f.Close()
	}
	return p, err
}

// startCommand runs a command that has no stdin yet; its stdout becomes ours too, unless it is set.
func startCommand(cmd *exec.Cmd) (*process, error) {
	var toChild, fromChild [2]int
	if err := errors.Join(unix.Pipe2(toChild[:], unix.O_CLOEXEC), unix.Pipe2(fromChild[:], unix.O_CLOEXEC)); err != nil {
		return nil, err
	}
	stdin, stdout := os.NewFile(uintptr(toChild[0]), "stdin"), os.NewFile(uintptr(fromChild[1]), "stdout")
	cmd.Stdin = stdin
	if cmd.Stdout == nil {
		cmd.Stdout = stdout
	}
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	err := cmd.Start()
	stdin.Close()
	stdout.Close()
	if err != nil {
		unix.Close(toChild[1])
		unix.Close(fromChild[0])
		return nil, err
	}
	p := &process{cmd: cmd, in: toChild[1], out: fromChild[0], exited: make(chan struct{})}
	go func() { _ = cmd.Wait(); close(p.exited) }() // ends with the process, see stop
	return p, nil
}

// startPair starts two programs that share a socket as descriptor 3.
func startPair(path, front, back string) (relay, backend *process, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	a, b := os.NewFile(uintptr(fds[0]), "a"), os.NewFile(uintptr(fds[1]), "b")
	backend, err = start(nil, []*os.File{b}, path, back)
	if err != nil {
		a.Close()
		return nil, nil, err
	}
	relay, err = start(nil, []*os.File{a}, path, front)
	if err != nil {
		backend.stop()
	}
	return relay, backend, err
}

// stop closes stdin, and kills what has not ended after 3 s.
func (p *process) stop() {
	unix.Close(p.in)
	timer := time.NewTimer(3 * time.Second)
	defer timer.Stop()
	select {
	case <-p.exited:
	case <-timer.C:
		p.kill()
		<-p.exited
	}
	unix.Close(p.out)
}

// kill ends the process at once. Its pipes stay until stop.
func (p *process) kill() { _ = p.cmd.Process.Kill() }

func (p *process) pid() int { return p.cmd.Process.Pid }

// tasks returns one file of every thread of the process.
func (p *process) tasks(name string) [][]byte {
	paths, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/%s", p.pid(), name))
	var out [][]byte
	for _, path := range paths {
		if b, err := os.ReadFile(path); err == nil {
			out = append(out, b)
		}
	}
	return out
}

// cpu is the time all threads have run, in nanoseconds. Go programs keep their threads, so none is lost.
func (p *process) cpu() int64 {
	var total int64
	for _, b := range p.tasks("schedstat") {
		first, _, _ := strings.Cut(string(b), " ")
		n, _ := strconv.ParseInt(first, 10, 64)
		total += n
	}
	return total
}

// family returns the process and what it has started, directly or not.
func (p *process) family() []*process {
	parents := make(map[int][]int)
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		var pid, parent int
		_, _ = fmt.Sscan(string(b), &pid)
		if i := bytes.LastIndexByte(b, ')'); i >= 0 { // the name may hold anything
			var state string
			_, _ = fmt.Sscan(string(b[i+1:]), &state, &parent)
		}
		parents[parent] = append(parents[parent], pid)
	}
	all := []*process{p}
	for i := 0; i < len(all); i++ {
		for _, pid := range parents[all[i].pid()] {
			all = append(all, &process{cmd: &exec.Cmd{Process: &os.Process{Pid: pid}}})
		}
	}
	return all
}

// program is the path of the program that runs in the process, "" when it has ended.
func (p *process) program() string {
	path, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", p.pid()))
	return path
}

// wakeups is how often a thread has gone to sleep by itself.
func (p *process) wakeups() int64 {
	var total int64
	for _, b := range p.tasks("status") {
		total += field(b, "voluntary_ctxt_switches:")
	}
	return total
}

// calls is the number of read and write system calls made; sends to sockets by other calls are not among them.
func (p *process) calls() int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", p.pid()))
	if err != nil {
		return 0
	}
	return field(b, "syscr:") + field(b, "syscw:")
}

// pss is the proportional share of memory, in KiB.
func (p *process) pss() int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p.pid()))
	if err != nil {
		return 0
	}
	return field(b, "Pss:")
}

// field reads the number behind a name at the start of a line.
func field(b []byte, name string) int64 {
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte(name)); ok {
			word := strings.Fields(string(rest))
			if len(word) > 0 {
				n, _ := strconv.ParseInt(word[0], 10, 64)
				return n
			}
		}
	}
	return 0
}
