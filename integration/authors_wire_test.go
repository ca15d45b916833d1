//go:build unix

package integration

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sox-host/sox-host/integration/internal/rig"
	"github.com/sox-host/sox-host/plugin/wire"
	"github.com/sox-host/sox-host/sdk"
	"github.com/sox-host/sox-host/sdk/sdktest"
)

// The examples in other languages were written from PROTOCOL.md. Here the test plays the host, frame by frame; authors_test.go runs them behind the
// real one.

// script is one of these examples.
type script struct {
	name, file, interpreter string
	method                  string // a plain method that answers at once
	slow                    string // a method and a tool that take a while
	slowTool                string
	slowParams              map[string]any
	capacity                int // requests at once, waiting ones included
}

var scripts = []script{
	{"py-clock", "py-clock.py", "python3", "clock.now", "clock.wait", "wait", map[string]any{"seconds": 100}, 36},
	{"node-dice", "node-dice.cjs", "node", "dice.roll", "dice.roll", "roll", map[string]any{"dice": 100, "pause_ms": 10_000}, 64},
}

// path of the script. The test is skipped if nothing can run it.
func (s script) path(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath(s.interpreter); err != nil {
		t.Skipf("%s is not installed: %v", s.interpreter, err)
	}
	return filepath.Join(rig.ModuleRoot(), "examples", s.name, s.file)
}

// eachScript runs a test for each of them.
func eachScript(t *testing.T, test func(t *testing.T, s script)) {
	t.Parallel()
	for _, s := range scripts {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s.path(t)
			test(t, s)
		})
	}
}

// started is a script in a process of its own, with the test as its host.
type started struct {
	*sdktest.Host
	conn   net.Conn
	cmd    *exec.Cmd
	log    strings.Builder // its stderr, to be read after exited
	exited chan struct{}   // closed when the process was waited for
}

// start runs a script as the host would, with a socket as descriptor 3.
func (s script) start(t *testing.T) *started {
	t.Helper()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "host"), os.NewFile(uintptr(pair[1]), "plugin")
	syscall.CloseOnExec(pair[0])
	conn, err := net.FileConn(ours)
	ours.Close()
	if err != nil {
		t.Fatal(err)
	}
	p := &started{conn: conn, cmd: exec.Command(s.path(t)), exited: make(chan struct{})}
	p.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), wire.EnvFD + "=3", wire.EnvProtocols + "=1-1", wire.EnvName + "=" + s.name}
	p.cmd.ExtraFiles = []*os.File{theirs}
	p.cmd.Stderr = &p.log
	err = p.cmd.Start()
	theirs.Close()
	if err != nil {
		t.Fatal(err)
	}
	// Ended by the script itself, or by one of the kills.
	go func() {
		_ = p.cmd.Wait() // its code is looked at where it matters
		close(p.exited)
	}()
	killer := time.AfterFunc(rig.Patience, func() { _ = p.cmd.Process.Kill() })
	t.Cleanup(func() {
		killer.Stop()
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.exited
	})
	p.Host = sdktest.Attach(t, conn)
	return p
}

// expectExit waits for the end of the process.
func (p *started) expectExit(t *testing.T, code int) {
	t.Helper()
	<-p.exited
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("it exits with %d, want %d\n%s", got, code, p.log.String())
	}
}

// code is the code of an error, 0 without one.
func code(err error) int {
	if e, ok := err.(*sdk.Error); ok {
		return int(e.Code)
	}
	return 0
}

func TestScriptsSayWhoTheyAre(t *testing.T) {
	eachScript(t, func(t *testing.T, s script) {
		p := s.start(t)
		ready := p.Ready()
		if err := ready.Check(s.name, "1.0.0"); err != nil {
			t.Error(err)
		}
		if c := ready.Capabilities; !c.Ack || !c.Cancel || !c.Health {
			t.Errorf("capabilities %+v", c)
		}
		if _, err := p.Root().Call(wire.MethodHealth, nil); err != nil {
			t.Errorf("health: %v", err)
		}
		if _, err := p.Root().Call(s.method, nil); err != nil {
			t.Errorf("%s: %v", s.method, err)
		}
		if err := p.Shutdown(); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		frames := p.Frames()
		if last := frames[len(frames)-1]; string(last.Method()) != wire.MethodBye {
			t.Errorf("the last frame is not sox/bye but %s", last.Raw)
		}
		p.expectExit(t, 0)
	})
}

// Both eras, in sessions side by side.
func TestScriptsServeEveryRevision(t *testing.T) {
	eachScript(t, func(t *testing.T, s script) {
		p := s.start(t)
		for _, revision := range p.Ready().MCP {
			session := p.Open(sdktest.MCP(revision))
			raw, err := session.Call("tools/list", map[string]any{})
			var list struct {
				Tools []struct {
					Name  string
					Input struct{ Type string } `json:"inputSchema"`
				}
				ResultType string
				TTL        *int `json:"ttlMs"`
			}
			if err != nil || json.Unmarshal(raw, &list) != nil || len(list.Tools) == 0 || list.Tools[0].Input.Type != "object" {
				t.Errorf("%s: tools/list: %s, %v", revision, raw, err)
			}
			if modern := revision == "2026-07-28"; modern != (list.ResultType == "complete") || modern != (list.TTL != nil) {
				t.Errorf("%s: tools/list has the shape of another revision: %s", revision, raw)
			}
			if bad := session.Tool(s.slowTool, map[string]any{"seconds": "many", "dice": "many"}); !bad.IsError {
				t.Errorf("%s: wrong arguments are accepted: %+v", revision, bad)
			}
			if _, err := session.Call("tools/call", map[string]any{"name": "toString"}); code(err) != -32602 {
				t.Errorf("%s: an unknown tool: %v, want -32602", revision, err)
			}
			if _, err := session.Call("no/such", nil); code(err) != -32601 {
				t.Errorf("%s: an unknown method: %v, want -32601", revision, err)
			}
		}
		claim := map[string]any{"_meta": map[string]any{"io.modelcontextprotocol/protocolVersion": "2099-01-01"}}
		if _, err := p.Open().Call("tools/list", claim); code(err) != -32022 {
			t.Errorf("a revision that is not served: %v, want -32022", err)
		}
	})
}

func TestScriptsKeepSessionsApart(t *testing.T) {
	eachScript(t, func(t *testing.T, s script) {
		p := s.start(t)
		p.Ready()
		a, b := p.Open(), p.Open()
		if _, err := p.Root().Call(wire.MethodSessionOpen, wire.SessionOpen{Session: a.Number}); err == nil {
			t.Error("a session could be opened twice")
		}
		running := a.Start(s.slow, s.slowParams, `"ack":true`)
		p.Wait("the ack", func(f sdktest.Frame) bool { return f.Kind == wire.Ack })
		a.Close()
		if _, err := p.Answer(running).Value(); code(err) != -32008 {
			t.Errorf("a call of a session that was closed: %v, want -32008", err)
		}
		if _, err := a.Call(s.method, nil); code(err) != -32600 {
			t.Errorf("a request in a closed session: %v, want -32600", err)
		}
		if _, err := b.Call(s.method, nil); err != nil {
			t.Errorf("the other session: %v", err)
		}
		// The opening and what follows it may come in one piece.
		p.Send(fmt.Sprintf(`{"jsonrpc":"2.0","id":"open","method":"sox/session.open","params":{"session":%d,"mcp":null}}`, int64(1<<40)))
		p.Send(fmt.Sprintf(`{"jsonrpc":"2.0","id":"use","session":%d,"method":%q}`, int64(1<<40), s.method))
		f := p.Wait("the answer in the new session", func(f sdktest.Frame) bool { return f.Kind == wire.Response && string(f.ID()) == `"use"` })
		if _, err := f.Value(); err != nil {
			t.Errorf("a request right behind the opening: %v", err)
		}
	})
}

// A cancelled call, one past its deadline, and one that is cut short by the end: each is acknowledged before it runs and answered once.
func TestScriptsStopWhatRuns(t *testing.T) {
	eachScript(t, func(t *testing.T, s script) {
		p := s.start(t)
		p.Ready()
		session := p.Open(sdktest.MCP("2025-11-25"))
		tool := map[string]any{"name": s.slowTool, "arguments": s.slowParams, "_meta": map[string]any{"progressToken": "t"}}
		start := func(method string, params any, head ...string) uint64 {
			id := session.Start(method, params, append(head, `"ack":true`)...)
			p.Wait("the ack", func(f sdktest.Frame) bool { return f.Kind == wire.Ack && string(f.AckID()) == fmt.Sprint(id) })
			return id
		}
		cancelled := start("tools/call", tool)
		p.Wait("progress", func(f sdktest.Frame) bool {
			return string(f.Method()) == "notifications/progress" && f.Session() == session.Number
		})
		session.Cancel(cancelled)
		session.Cancel(cancelled)
		late := start("tools/call", tool, `"timeout_ms":20`)
		plain := start(s.slow, s.slowParams)
		session.Notify("$/cancelRequest", map[string]any{"id": plain})
		want := map[uint64]int{cancelled: -32008, late: -32005, plain: -32008}
		for id, expected := range want {
			if _, err := p.Answer(id).Value(); code(err) != expected {
				t.Errorf("request %d: %v, want %d", id, err, expected)
			}
		}
		cut := start(s.slow, s.slowParams)
		want[cut] = -32003
		if err := p.Shutdown(); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if _, err := p.Answer(cut).Value(); code(err) != -32003 {
			t.Errorf("a call that the end cut short: %v, want -32003", err)
		}
		for id := range want {
			n := 0
			for _, f := range p.Frames() {
				if f.Answers(id) {
					n++
				}
			}
			if n != 1 {
				t.Errorf("request %d was answered %d times", id, n)
			}
		}
		p.expectExit(t, 0)
	})
}

// What does not fit is refused without running, and places are given back.
func TestScriptsRefuseWhatIsTooMuch(t *testing.T) {
	eachScript(t, func(t *testing.T, s script) {
		p := s.start(t)
		p.Ready()
		var ids []uint64
		for range s.capacity {
			ids = append(ids, p.Root().Start(s.slow, s.slowParams))
		}
		if _, err := p.Root().Call(s.method, nil); code(err) != -32004 {
			t.Errorf("one too many: %v, want -32004", err)
		}
		if _, err := p.Root().Call(wire.MethodHealth, nil); err != nil {
			t.Errorf("health while every place is taken: %v", err)
		}
		for _, id := range ids {
			p.Root().Notify("$/cancelRequest", map[string]any{"id": id})
		}
		for _, id := range ids {
			if _, err := p.Answer(id).Value(); code(err) != -32008 {
				t.Errorf("a cancelled one: %v, want -32008", err)
			}
		}
		if _, err := p.Root().Call(s.method, nil); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// However the frames are cut: byte by byte, and many in one write, with a large one among them.
func TestScriptsReadFramesInAnyPieces(t *testing.T) {
	eachScript(t, func(t *testing.T, s script) {
		p := s.start(t)
		p.Ready()
		frame := func(id int, padding string) []byte {
			return wire.AppendFrame(nil, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":{"ünknown":%q}}`, id, s.method, padding))
		}
		for _, b := range frame(1000, "⏰") {
			if err := p.SendBytes([]byte{b}); err != nil {
				t.Fatal(err)
			}
		}
		all := append(frame(1001, ""), frame(1002, strings.Repeat("x", 3<<20))...)
		all = append(all, frame(1003, "")...)
		if err := p.SendBytes(all); err != nil {
			t.Fatal(err)
		}
		for id := uint64(1000); id <= 1003; id++ {
			if _, err := p.Answer(id).Value(); err != nil {
				t.Errorf("request %d: %v", id, err)
			}
		}
	})
}

// An end between two frames is a clean one, whichever way it comes; anything else is said in the log.
func TestScriptsEnd(t *testing.T) {
	eachScript(t, func(t *testing.T, s script) {
		for name, end := range map[string]func(p *started){
			"end_of_stream": func(p *started) { _ = p.conn.Close() },
			"sigterm":       func(p *started) { _ = p.cmd.Process.Signal(syscall.SIGTERM) },
			"sigint":        func(p *started) { _ = p.cmd.Process.Signal(syscall.SIGINT) },
		} {
			t.Run(name, func(t *testing.T) {
				p := s.start(t)
				p.Ready()
				p.Root().Start(s.slow, s.slowParams)
				end(p)
				p.expectExit(t, 0)
			})
		}
		for _, name := range []string{"empty_frame", "frame_over_the_limit", "not_json", "not_an_object", "invalid_utf8", "wrong_version", "id_is_an_object", "nothing_in_it"} {
			t.Run(name, func(t *testing.T) {
				p := s.start(t)
				p.Ready()
				_ = p.SendBytes(sdktest.Hostile()[name]) // it may hang up before it has all of it
				p.expectExit(t, 1)
				if !strings.Contains(p.log.String(), "broken") {
					t.Errorf("its log says nothing: %q", p.log.String())
				}
			})
		}
		t.Run("cut_frame", func(t *testing.T) {
			p := s.start(t)
			p.Ready()
			if err := p.SendBytes([]byte{0, 0, 0, 9, '{'}); err != nil {
				t.Fatal(err)
			}
			if err := p.conn.(*net.UnixConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			p.expectExit(t, 1)
		})
	})
}

// A protocol that the script does not speak is said in words.
func TestScriptsRefuseOtherProtocols(t *testing.T) {
	eachScript(t, func(t *testing.T, s script) {
		cmd := exec.Command(s.path(t))
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), wire.EnvFD + "=3", wire.EnvProtocols + "=2-3"}
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), "2 to 3") {
			t.Errorf("%v, %s", err, out)
		}
	})
}
