package rig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sox-host/sox-host/integration/internal/history"
)

// Host is one `sox-host serve` and the client that owns its stdin and stdout. All methods are safe for concurrent use.
type Host struct {
	t     testing.TB
	place *Place
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *os.File // the reading end of its stdout

	write  sync.Mutex    // one line at a time
	ended  chan struct{} // closed when stdout has ended and the process was waited for
	killed bool          // its last line may be cut

	mu       sync.Mutex
	idle     chan struct{}        // closed when the client reads again; nil while it reads
	lastID   int                  // of Request; tests that choose ids take small ones
	asked    map[string][]*Future // by the bytes of the id, in the order they were asked
	messages []Message            // notifications and requests of the host, in order
	changed  chan struct{}        // closed and replaced with each message
	serve    func(Message) (any, *Error)
	faults   []string
	stderr   tail
}

// Serve starts a host. It is closed, and everything that must hold for any host is checked, when the test ends.
func (p *Place) Serve(args ...string) *Host {
	p.t.Helper()
	return p.ServeProgram(p.HostProgram(), append([]string{"serve"}, args...)...)
}

// ServeProgram starts any program that speaks lines on its stdin and stdout, with the same checks.
func (p *Place) ServeProgram(program string, args ...string) *Host {
	p.t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env, cmd.Dir = p.environ(), p.Home
	h := &Host{t: p.t, place: p, cmd: cmd, ended: make(chan struct{}), lastID: 1000, asked: map[string][]*Future{}, changed: make(chan struct{})}
	cmd.Stderr = &h.stderr
	// A process that survived the host could hold stderr open; the standing checks find it.
	cmd.WaitDelay = exitBound
	in, err := cmd.StdinPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	out, outWriter, err := os.Pipe()
	if err != nil {
		p.t.Fatal(err)
	}
	cmd.Stdout = outWriter
	h.stdin, h.out = in, out
	err = cmd.Start()
	outWriter.Close()
	if err != nil {
		p.t.Fatalf("start sox-host: %v", err)
	}
	go h.read() // ends with the host's stdout, or with CloseStdout; joined through ended
	p.t.Cleanup(h.finish)
	return h
}

// PID of the host.
func (h *Host) PID() int { return h.cmd.Process.Pid }

// Exited is closed when the host has ended.
func (h *Host) Exited() <-chan struct{} { return h.ended }

// Log is what the host wrote to stderr, without the beginning if that is long.
func (h *Host) Log() string { return h.stderr.String() }

// CloseStdin ends the conversation the way clients do.
func (h *Host) CloseStdin() { _ = h.stdin.Close() } // closing twice is no fault

// CloseStdout closes the reading end of the host's stdout, as a client does that went away.
func (h *Host) CloseStdout() { _ = h.out.Close() }

// StopReading lets the client read nothing more, but for at most one buffer (256 KiB) that a read under way may still
// take, until the returned function is called.
func (h *Host) StopReading() (goOn func()) {
	idle := make(chan struct{})
	h.mu.Lock()
	h.idle = idle
	h.mu.Unlock()
	return sync.OnceFunc(func() {
		h.mu.Lock()
		h.idle = nil
		h.mu.Unlock()
		close(idle)
	})
}

// reading is the host's stdout as the client reads it.
type reading struct{ h *Host }

func (r reading) Read(p []byte) (int, error) {
	r.h.mu.Lock()
	idle := r.h.idle
	r.h.mu.Unlock()
	if idle != nil {
		<-idle // the test goes on reading before it ends
	}
	return r.h.out.Read(p)
}

// Signal sends a signal to the host.
func (h *Host) Signal(s syscall.Signal) {
	h.t.Helper()
	if err := h.cmd.Process.Signal(s); err != nil {
		h.t.Errorf("signal the host: %v", err)
	}
}

// stacks ends a host that does not do what it should, and returns where its goroutines were.
func (h *Host) stacks() string {
	h.mu.Lock()
	h.killed = true
	h.mu.Unlock()
	before := len(h.stderr.String())
	if err := h.cmd.Process.Signal(syscall.SIGQUIT); err != nil {
		return err.Error()
	}
	h.Wait()
	log := h.stderr.String()
	return log[min(before, len(log)):]
}

// Kill ends the host by SIGKILL and waits for its end.
func (h *Host) Kill() {
	h.t.Helper()
	h.mu.Lock()
	h.killed = true
	h.mu.Unlock()
	h.Signal(syscall.SIGKILL)
	h.Wait()
}

// ExpectKill says that the host ends by a SIGKILL that this rig does not send, such as one of its own.
func (h *Host) ExpectKill() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.killed = true
}

// Kill ends any process by SIGKILL, or what the system has for that.
func Kill(t testing.TB, pid int) {
	t.Helper()
	process, err := os.FindProcess(pid)
	if err == nil {
		err = process.Kill()
	}
	if err != nil {
		t.Errorf("kill process %d: %v", pid, err)
	}
}

// Wait waits for the host to end and returns its exit code, -1 after a signal.
func (h *Host) Wait() int {
	h.t.Helper()
	select {
	case <-h.ended:
	case <-time.After(Patience):
		h.t.Errorf("the host does not end")
		_ = h.cmd.Process.Kill()
		<-h.ended
	}
	return h.cmd.ProcessState.ExitCode()
}

// Close closes stdin, waits, and expects the exit code 0.
func (h *Host) Close() {
	h.t.Helper()
	h.CloseStdin()
	if code := h.Wait(); code != 0 && !h.wasKilled() {
		h.t.Errorf("the host ends with code %d", code)
	}
}

func (h *Host) wasKilled() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.killed
}

// finish is the end of every test.
func (h *Host) finish() {
	h.t.Helper()
	h.Close()
	h.mu.Lock()
	faults := slices.Clone(h.faults)
	h.mu.Unlock()
	for _, fault := range faults {
		h.t.Errorf("on stdout: %s", fault)
	}
	if log := h.Log(); strings.Contains(log, "DATA RACE") || strings.Contains(log, "panic:") || strings.Contains(log, "fatal error:") {
		h.t.Error("the host or a plugin is broken")
	}
	if h.t.Failed() {
		h.t.Logf("log of the host:\n%s", h.stderr.end())
	}
}

// fault keeps what is wrong with stdout for the end of the test.
func (h *Host) fault(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.faults) < 20 {
		h.faults = append(h.faults, fmt.Sprintf(format, args...))
	}
}

// read takes every line of the host apart.
func (h *Host) read() {
	lines := newLines(reading{h})
	for {
		line, err := lines.next()
		if len(line) > 0 {
			if err == nil || !h.wasKilled() {
				h.line(line, err == nil)
			}
		}
		if err != nil {
			break
		}
	}
	_ = h.cmd.Wait() // the exit code is looked at where it matters
	_ = h.out.Close()
	h.mu.Lock()
	for _, futures := range h.asked {
		for _, f := range futures {
			f.end(Answer{Closed: true})
		}
	}
	h.mu.Unlock()
	close(h.ended)
}

// line checks one line and hands it on.
func (h *Host) line(line []byte, whole bool) {
	if !whole {
		h.fault("the last line has no newline: %s", clip(line))
		return
	}
	m, err := history.CheckLine(line)
	if err != nil {
		h.fault("%v", err)
		return
	}
	if m.Method != "" {
		h.message(Message{ID: m.ID, Method: m.Method, Params: m.Params, At: time.Now()})
		return
	}
	a := Answer{Result: m.Result, Line: bytes.Clone(line), At: time.Now()}
	if m.Error != nil {
		a.Error = new(Error)
		if err := json.Unmarshal(m.Error, a.Error); err != nil {
			h.fault("an error object that is none: %s", clip(line))
			return
		}
	}
	id := string(m.ID)
	h.mu.Lock()
	futures := slices.Clone(h.asked[id])
	h.mu.Unlock()
	for _, f := range futures {
		if f.end(a) {
			return
		}
	}
	if futures == nil {
		h.fault("an answer to the id %q, which was never asked: %s", id, clip(line))
	} else {
		h.fault("an answer to the id %s, which has been answered: %s", id, clip(line))
	}
}

// message keeps a notification or answers a request of the host.
func (h *Host) message(m Message) {
	h.mu.Lock()
	h.messages = append(h.messages, m)
	close(h.changed)
	h.changed = make(chan struct{})
	serve := h.serve
	h.mu.Unlock()
	if m.ID == nil {
		return
	}
	// Ends when the answer is written; a host that reads nothing ends it by its own end.
	go func() {
		var result any
		fault := &Error{Code: -32601, Message: "this client serves nothing"}
		if serve != nil {
			result, fault = serve(m)
		}
		answer := map[string]any{"jsonrpc": "2.0", "id": m.ID, "result": result}
		if fault != nil {
			answer = map[string]any{"jsonrpc": "2.0", "id": m.ID, "error": fault}
		}
		raw, err := json.Marshal(answer)
		if err != nil {
			h.fault("answer to %s: %v", m.Method, err)
			return
		}
		h.Line(string(raw))
	}()
}

// OnRequest says how the client answers requests of the host, each on a goroutine of its own. Without it they are refused.
func (h *Host) OnRequest(serve func(Message) (any, *Error)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.serve = serve
}

// Line writes one line as it is. A newline is added.
func (h *Host) Line(line string) {
	h.write.Lock()
	defer h.write.Unlock()
	// A host that has ended is noticed by whoever waits for an answer.
	_, _ = io.WriteString(h.stdin, line+"\n")
}

// Bytes writes bytes as they are.
func (h *Host) Bytes(raw []byte) {
	h.write.Lock()
	defer h.write.Unlock()
	_, _ = h.stdin.Write(raw)
}

// nextID mints an id.
func (h *Host) nextID() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lastID++
	return strconv.Itoa(h.lastID)
}

// Expect announces that an answer to the raw id may come, for requests that are written with Line. An id that is used again gets one more answer.
func (h *Host) Expect(id string) *Future {
	f := &Future{ID: id, host: h, done: make(chan struct{})}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked[id] = append(h.asked[id], f)
	return f
}

// Request sends a request with a fresh id. params may be anything that encodes, or nil.
func (h *Host) Request(method string, params any) *Future {
	h.t.Helper()
	return h.RequestID(h.nextID(), method, params)
}

// RequestID sends a request with a raw id.
func (h *Host) RequestID(id, method string, params any) *Future {
	h.t.Helper()
	f := h.Expect(id)
	f.what = method
	h.Line(Line(id, method, params))
	return f
}

// Notify sends a notification.
func (h *Host) Notify(method string, params any) { h.Line(Line("", method, params)) }

// Cancel withdraws a request of MCP.
func (h *Host) Cancel(f *Future) {
	h.Notify("notifications/cancelled", map[string]any{"requestId": json.RawMessage(f.ID), "reason": "test"})
}

// Line builds a request, or with an empty id a notification.
func Line(id, method string, params any) string {
	var b strings.Builder
	b.WriteString(`{"jsonrpc":"2.0"`)
	if id != "" {
		b.WriteString(`,"id":` + id)
	}
	fmt.Fprintf(&b, `,"method":%q`, method)
	if params != nil {
		raw, ok := params.(json.RawMessage)
		if !ok {
			var buf bytes.Buffer
			enc := json.NewEncoder(&buf)
			enc.SetEscapeHTML(false)
			if err := enc.Encode(params); err != nil {
				panic(err) // a fault of the test
			}
			raw = bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
		}
		b.WriteString(`,"params":`)
		b.Write(raw)
	}
	b.WriteString("}")
	return b.String()
}

// Messages are the notifications and requests of the host with this method, in order.
func (h *Host) Messages(method string) []Message {
	h.mu.Lock()
	defer h.mu.Unlock()
	var found []Message
	for _, m := range h.messages {
		if m.Method == method {
			found = append(found, m)
		}
	}
	return found
}

// AwaitMessages waits until the host has sent n of them, from the beginning.
func (h *Host) AwaitMessages(method string, n int) []Message {
	h.t.Helper()
	deadline := time.After(Patience)
	for {
		h.mu.Lock()
		changed := h.changed
		h.mu.Unlock()
		if found := h.Messages(method); len(found) >= n {
			return found
		}
		select {
		case <-changed:
		case <-h.ended:
			h.t.Fatalf("the host ended before it sent %d of %s", n, method)
		case <-deadline:
			h.t.Fatalf("waited in vain for %d of %s, there are %d", n, method, len(h.Messages(method)))
		}
	}
}

// ErrClosed is the error of an answer that did not come.
var ErrClosed = errors.New("the host ended without an answer")

func clip(line []byte) string {
	const enough = 300
	if len(line) > enough {
		return fmt.Sprintf("%q… (%d bytes)", line[:enough], len(line))
	}
	return fmt.Sprintf("%q", line)
}
