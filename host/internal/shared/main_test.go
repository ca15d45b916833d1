//go:build linux || darwin

package shared

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sox-host/sox-host/host/internal/control"
	"github.com/sox-host/sox-host/host/internal/process"
	"github.com/sox-host/sox-host/plugin/socket"
	"github.com/sox-host/sox-host/plugin/wire"
)

// patience bounds every wait for a real process. No test passes or fails by how much of it is used.
const patience = 60 * time.Second

// envRole makes the test binary another program: what it is, and where its test's files are.
const envRole, envDir = "SOX_SHARED_TEST_ROLE", "SOX_SHARED_TEST_DIR"

var roles = map[string]func() error{}

func TestMain(m *testing.M) {
	if role := os.Getenv(envRole); role != "" {
		leashed()
		if err := roles[role](); err != nil {
			fmt.Fprintln(os.Stderr, role+":", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// place is a home of its own. What is started in it is held by a leash, a named pipe whose end, which comes with that
// of the test at the latest, ends every process: detached ones inherit nothing by which they could be held.
type place struct {
	t       *testing.T
	home    string
	spawner *process.Spawner
	leash   *os.File
}

func leashOf(home string) string { return filepath.Join(home, "leash") }

// leashed ends this process with its test.
func leashed() {
	f, err := os.Open(leashOf(os.Getenv(envDir)))
	if err != nil {
		os.Exit(98)
	}
	go func() {
		_, _ = io.Copy(io.Discard, f)
		os.Exit(97)
	}()
}

func newPlace(t *testing.T) *place {
	t.Helper()
	home, err := os.MkdirTemp("/tmp", "soxh")
	if err != nil {
		t.Fatal(err)
	}
	p := &place{t: t, home: home, spawner: process.NewSpawner(process.Options{})}
	if err := syscall.Mkfifo(leashOf(home), 0o600); err != nil {
		t.Fatal(err)
	}
	// Read and write, so that neither end waits for the other to be opened.
	if p.leash, err = os.OpenFile(leashOf(home), os.O_RDWR, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.release()
		_ = p.spawner.Close()
		os.RemoveAll(home)
	})
	return p
}

// release ends every process of the test.
func (p *place) release() { p.leash.Close() }

func (p *place) run() string { return control.RunFolder(p.home) }

// options want a process that plays a role.
func (p *place) options(role string) Options {
	return Options{
		Key: Key{
			Home: p.home, Plugin: "notes", Version: "1.2.0", SHA256: "00ff",
			Env: []string{envRole + "=" + role, envDir + "=" + p.home, "GORACE=atexit_sleep_ms=0", "HOME=" + p.home},
		},
		Program: self(),
		Log:     Log{Path: filepath.Join(p.home, "notes.log"), MaxBytes: 1 << 20},
		Start:   p.spawner.StartDetached,
		Ready:   patience,
	}
}

func self() string {
	path, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return path
}

// ensure is Ensure that has to succeed. The Link is stopped with the test.
func (p *place) ensure(o Options) *Link {
	p.t.Helper()
	l, outcome, err := Ensure(p.t.Context(), o)
	if err != nil {
		p.t.Fatal(err)
	}
	if outcome != l.Outcome {
		p.t.Errorf("outcome %s, and %s of the link", outcome, l.Outcome)
	}
	p.t.Cleanup(func() { l.Stop(process.DefaultLadder) })
	return l
}

// readReady reads the frame that a process says first.
func readReady(c net.Conn) (string, error) {
	body, err := wire.NewFrameReader(c, wire.DefaultMaxFrameBytes).Next()
	return string(body), err
}

func init() { roles["plugin"] = servePlugin }

// servePlugin is a well-behaved shared plugin. It says its pid, answers pings, and ends when it is told to.
func servePlugin() error {
	l, err := adoptAndListen()
	if err != nil {
		return err
	}
	fmt.Println("serving on stdout")
	fmt.Fprintln(os.Stderr, "serving on stderr")
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			if err := sayReady(c); err != nil {
				return
			}
			words := bufio.NewScanner(c)
			for words.Scan() {
				switch word, rest, _ := strings.Cut(words.Text(), " "); word {
				case "exit":
					fmt.Println(rest)
					os.Exit(7)
				case "ping":
					fmt.Fprintln(c, "pong")
				}
			}
		}()
	}
}

func adoptAndListen() (*socket.Listener, error) {
	path := os.Getenv(wire.EnvSocket)
	lock, err := socket.AdoptLock(process.DetachedFD, socket.LockPath(path))
	if err != nil {
		return nil, err
	}
	kept = lock
	return socket.ListenLocked(path, lock)
}

// kept holds the lock for as long as the process lives.
var kept *socket.Lock

func sayReady(w io.Writer) error {
	body := fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"sox/ready","params":{"pid":%d}}`, os.Getpid())
	frame, start := wire.BeginFrame(nil)
	frame = append(frame, body...)
	if err := wire.SealFrame(frame, start, wire.DefaultMaxFrameBytes); err != nil {
		return err
	}
	_, err := w.Write(frame)
	return err
}

// endOf ends a process that only this test knows, and waits until its lock is free.
func (p *place) endOf(l *Link) {
	p.t.Helper()
	if err := syscall.Kill(l.Pid(), syscall.SIGKILL); err != nil {
		p.t.Error(err)
	}
	p.awaitFree(l.Path)
}

func (p *place) awaitFree(path string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	lock, err := socket.WaitLock(ctx, socket.LockPath(path))
	if err != nil {
		p.t.Fatalf("somebody still serves: %v", err)
	}
	lock.Close()
}
