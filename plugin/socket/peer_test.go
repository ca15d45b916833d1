//go:build linux || darwin

package socket

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

func init() {
	roles["stranger_dials"] = strangerDials
	roles["stranger_listens"] = strangerListens
}

const envSocket = "SOX_SOCKET_TEST_PATH"

func becomeStranger() error {
	return errors.Join(syscall.Setregid(strangerUID, strangerUID), syscall.Setreuid(strangerUID, strangerUID))
}

// strangerDials connects as another user and prints what it reads until the other side hangs up.
func strangerDials() error {
	if err := becomeStranger(); err != nil {
		return err
	}
	c, err := net.Dial("unix", os.Getenv(envSocket))
	if err != nil {
		return err
	}
	got, err := io.ReadAll(c)
	fmt.Printf("%q", got)
	if errors.Is(err, syscall.ECONNRESET) {
		return nil
	}
	return err
}

// strangerListens begins to listen as another user, on a socket that it bound before, and serves until its stdin ends.
func strangerListens() error {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: os.Getenv(envSocket)}); err != nil {
		return err
	}
	if err := becomeStranger(); err != nil {
		return err
	}
	if err := syscall.Listen(fd, 8); err != nil {
		return err
	}
	fmt.Println("listening")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func TestPeerUID_tells_who_is_at_the_other_end(t *testing.T) {
	path := filepath.Join(privateDir(t), "s")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialled, err := Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer dialled.Close()
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	for side, c := range map[string]*Conn{"dialled": dialled, "accepted": accepted} {
		uid, pid, err := PeerUID(c)
		if err != nil || uid != os.Geteuid() || pid != os.Getpid() {
			t.Errorf("%s: uid %d, pid %d, %v", side, uid, pid, err)
		}
		if err := CheckPeer(c); err != nil {
			t.Errorf("%s: %v", side, err)
		}
	}
	dialled.Close()
	if _, _, err := PeerUID(dialled); err == nil {
		t.Error("credentials of a closed connection")
	}
}

func TestCheckPeer_refuses_another_user_who_connects(t *testing.T) {
	needRoot(t)
	dir := privateDir(t)
	path := filepath.Join(dir, "s")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	// Open every other door, so that the check is what stops the stranger.
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(path, 0o666)); err != nil {
		t.Fatal(err)
	}
	accepted := make(chan error, 1) // one send, by the goroutine below
	go func() {                     // ends when the stranger was refused or l is closed
		c, err := l.accept()
		if err == nil {
			err = CheckPeer(c)
			c.Close()
		}
		accepted <- err
	}()
	act(t, actor(t, "stranger_dials", envSocket+"="+path))
	var refused *PeerError
	if err := <-accepted; !errors.As(err, &refused) || refused.UID != strangerUID || refused.ExpectedUID != os.Geteuid() {
		t.Fatalf("CheckPeer: %v, want a PeerError for uid %d", err, strangerUID)
	}

	// Accept hangs up on the stranger and goes on to the next connection.
	next := make(chan *Conn, 1) // one send
	go func() {                 // ends with the connection made below, or when l is closed
		c, _ := l.Accept()
		next <- c
	}()
	if got := act(t, actor(t, "stranger_dials", envSocket+"="+path)); got != `""` {
		t.Errorf("stranger read %s", got)
	}
	c, err := Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	served := <-next
	if served == nil {
		t.Fatal("Accept failed")
	}
	served.Close()
	if l.Refused() != 1 {
		t.Errorf("Refused() = %d, want 1", l.Refused())
	}
}

func TestDial_refuses_a_server_of_another_user(t *testing.T) {
	needRoot(t)
	path := filepath.Join(privateDir(t), "s")
	cmd := actor(t, "stranger_listens", envSocket+"="+path)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer stdin.Close()
	if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	_, err = Dial(t.Context(), path)
	var refused *PeerError
	if !errors.As(err, &refused) || refused.UID != strangerUID || refused.PID != cmd.Process.Pid {
		t.Fatalf("Dial: %v, want a PeerError for uid %d, pid %d", err, strangerUID, cmd.Process.Pid)
	}
	// It is alive all the same, so nobody may take its socket.
	if found, err := Probe(t.Context(), path); found != Live || err != nil {
		t.Errorf("Probe: %v, %v", found, err)
	}
}

// hello reads the one line that the servers of these tests write.
func hello(c *Conn) (string, error) {
	c.SetReadDeadline(time.Now().Add(patience))
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return "", err
	}
	return line[:len(line)-1], nil
}
