//go:build unix

package sdk

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sox-host/sox-host/plugin/socket"
)

// placedAt listens at a short path, with a lock of its own or an inherited one.
func placedAt(t *testing.T, inherited bool) *placed {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "soxs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s.sock")
	p := &placed{path: path, own: !inherited, stop: make(chan struct{})}
	if inherited {
		p.lock, err = socket.TryLock(socket.LockPath(path))
	} else {
		err = p.takeLock("")
	}
	if err != nil {
		t.Fatal(err)
	}
	if p.now, err = socket.ListenLocked(path, p.lock); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close(); p.lock.Close() })
	return p
}

// serve greets everybody until Accept fails, and returns why.
func serve(p *placed) <-chan error {
	ended := make(chan error, 1)
	go func() {
		for {
			c, err := p.Accept()
			if err != nil {
				ended <- err
				return
			}
			_, _ = c.Write([]byte("hello"))
			c.Close()
		}
	}()
	return ended
}

func greeted(t *testing.T, path string) {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if word, err := io.ReadAll(c); err != nil || string(word) != "hello" {
		t.Errorf("%q, %v", word, err)
	}
}

// A socket whose name was taken away is made again; the lock is held throughout.
func TestPlaced_listens_again_when_its_name_is_gone(t *testing.T) {
	for name, inherited := range map[string]bool{"own_lock": false, "inherited_lock": true} {
		t.Run(name, func(t *testing.T) {
			p := placedAt(t, inherited)
			ended := serve(p)
			greeted(t, p.path)
			p.look() // all is well
			greeted(t, p.path)
			if err := os.Remove(p.path); err != nil {
				t.Fatal(err)
			}
			p.look()
			greeted(t, p.path)
			if _, err := socket.TryLock(socket.LockPath(p.path)); !errors.Is(err, socket.ErrLocked) {
				t.Errorf("the lock: %v", err)
			}
			p.Close()
			if err := <-ended; !errors.Is(err, os.ErrClosed) {
				t.Error(err)
			}
			if _, err := os.Lstat(p.path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the socket is left: %v", err)
			}
		})
	}
}

// Without its lock file it cannot know whether it is the only one.
func TestPlaced_ends_when_its_lock_is_gone(t *testing.T) {
	p := placedAt(t, true)
	ended := serve(p)
	if err := os.Remove(socket.LockPath(p.path)); err != nil {
		t.Fatal(err)
	}
	p.look()
	if err := <-ended; !errors.Is(err, socket.ErrLockLost) {
		t.Error(err)
	}
}

func TestRetireAsToldTo(t *testing.T) {
	for name, c := range map[string]struct {
		author time.Duration
		user   string
		shared bool
		want   time.Duration
	}{
		"private_never":          {0, "", false, 0},
		"private_as_its_author":  {time.Hour, "", false, time.Hour},
		"shared_by_default":      {0, "", true, DefaultSharedIdle},
		"shared_as_its_author":   {time.Hour, "", true, time.Hour},
		"as_its_user":            {time.Hour, "90000", true, 90 * time.Second},
		"as_its_user_by_himself": {0, "1", false, time.Millisecond},
	} {
		p := New("idle", "1.0.0", RetireWhenIdle(c.author))
		if err := p.retireAsToldTo(c.user, c.shared); err != nil || p.idle != c.want {
			t.Errorf("%s: %v, %v; want %v", name, p.idle, err, c.want)
		}
	}
	for _, bad := range []string{"0", "-1", "10m", "9223372036854775807"} {
		if err := New("idle", "1.0.0").retireAsToldTo(bad, true); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
