//go:build linux || darwin

package socket

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func init() { roles["serve_inherited"] = serveInherited }

// serveInherited greets one client on the socket it was started with, then tells what is left of the variables that
// announced it.
func serveInherited() error {
	if os.Getenv("LISTEN_PID") == "self" { // a supervisor sets it between fork and exec, which Go does not let a test do
		os.Setenv("LISTEN_PID", strconv.Itoa(os.Getpid()))
	}
	l, err := ListenInherited()
	if err != nil || l == nil {
		fmt.Printf("%v %v\n", l, err)
		return nil
	}
	defer l.Close()
	c, err := l.Accept()
	if err != nil {
		return err
	}
	defer c.Close()
	var left []string
	for _, name := range []string{EnvListenFD, "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		if _, set := os.LookupEnv(name); set {
			left = append(left, name)
		}
	}
	_, err = fmt.Fprintf(c, "served by %d, left %q\n", os.Getpid(), left)
	return err
}

// boundSocket is what a supervisor passes on.
func boundSocket(t *testing.T, path string) *os.File {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	defer l.Close()
	f, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestSeed_B6_listens_on_an_inherited_descriptor(t *testing.T) {
	for name, env := range map[string][]string{
		"our_variable":       {EnvListenFD + "=3"},
		"systemd_variables":  {"LISTEN_PID=self", "LISTEN_FDS=1", "LISTEN_FDNAMES=sox"},
		"ours_goes_first":    {EnvListenFD + "=3", "LISTEN_PID=1", "LISTEN_FDS=7"},
		"names_are_optional": {"LISTEN_PID=self", "LISTEN_FDS=1"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(privateDir(t), "s")
			f := boundSocket(t, path)
			cmd := actor(t, "serve_inherited", env...)
			cmd.ExtraFiles = []*os.File{f}
			cmd.Stderr = os.Stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			c, err := Dial(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			got, err := hello(c)
			want := fmt.Sprintf("served by %d, left []", cmd.Process.Pid)
			if name == "ours_goes_first" {
				want = fmt.Sprintf("served by %d, left %q", cmd.Process.Pid, []string{"LISTEN_PID", "LISTEN_FDS"})
			}
			if err != nil || got != want {
				t.Errorf("read %q, %v, want %q", got, err, want)
			}
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
			if _, err := os.Lstat(path); err != nil {
				t.Errorf("the supervisor's socket is gone: %v", err)
			}
		})
	}
}

func TestSeed_B6_refuses_what_it_cannot_listen_on(t *testing.T) {
	dir := privateDir(t)
	for name, c := range map[string]struct {
		env  []string
		want string
	}{
		"nothing_announced":            {nil, "<nil> <nil>"},
		"announced_to_another_process": {[]string{"LISTEN_PID=1", "LISTEN_FDS=1"}, "<nil> <nil>"},
		"no_number":                    {[]string{EnvListenFD + "=x"}, "not a descriptor number"},
		"empty":                        {[]string{EnvListenFD + "="}, "not a descriptor number"},
		"stdin":                        {[]string{EnvListenFD + "=0"}, "stdin"},
		"negative":                     {[]string{EnvListenFD + "=-1"}, "stdin"},
		"not_open":                     {[]string{EnvListenFD + "=900"}, "not an open socket"},
		"two_sockets":                  {[]string{"LISTEN_PID=self", "LISTEN_FDS=2"}, "one socket"},
		"absurd_count":                 {[]string{"LISTEN_PID=self", "LISTEN_FDS=100000000"}, "not a number from 0"},
		"fewer_than_announced":         {[]string{"LISTEN_PID=self", "LISTEN_FDS=60"}, "is not open"},
		"mangled_pid":                  {[]string{"LISTEN_PID=me", "LISTEN_FDS=1"}, "not a process id"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := actor(t, "serve_inherited", c.env...)
			f := boundSocket(t, filepath.Join(dir, name))
			cmd.ExtraFiles = []*os.File{f, f}
			if got := act(t, cmd); !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q in it", got, c.want)
			}
		})
	}
}

func TestSeed_B6_refuses_a_descriptor_that_is_no_listening_unix_socket(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	path := filepath.Join(privateDir(t), "s")
	boundSocket(t, path)
	dialled, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer dialled.Close()
	plain, err := os.Create(path + ".file")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	for name, c := range map[string]struct {
		file func() (*os.File, error)
		want string
	}{
		"tcp":       {tcp.(*net.TCPListener).File, "not a Unix stream socket"},
		"connected": {dialled.(*net.UnixConn).File, "does not listen"},
		"file":      {func() (*os.File, error) { return plain, nil }, "not an open socket"},
	} {
		f, err := c.file()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if l, err := FromDescriptor(int(f.Fd())); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v, want %q", name, l, err, c.want)
		}
		if _, err := f.Stat(); err != nil {
			t.Errorf("%s: the refused descriptor was closed: %v", name, err)
		}
	}
}
