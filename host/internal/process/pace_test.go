package process

import (
	"bytes"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// writer is a child that prints, and how long it had to wait.
type writer struct {
	net.Conn
	block   []byte
	longest time.Duration
}

// print writes lines of 1 KiB that count n together, and returns how long that took.
func (w *writer) print(t *testing.T, n int) (took time.Duration) {
	t.Helper()
	began := time.Now()
	for range n / OutputCost(pacedBytes>>10, pacedBytes) {
		from := time.Now()
		if _, err := w.Write(w.block); err != nil {
			t.Fatal(err)
		}
		w.longest = max(w.longest, time.Since(from))
	}
	return time.Since(began)
}

// printing returns a capture and a child that prints into it.
func printing() (*capture, *writer) {
	c := newCapture(nil)
	child, host := net.Pipe()
	c.start(Stderr, &fakeSource{Conn: host})
	line := append(bytes.Repeat([]byte("x"), 1<<10-1), '\n')
	return c, &writer{Conn: child, block: bytes.Repeat(line, pacedBytes>>10)}
}

func TestOutputWithinItsPaceNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, child := printing()
		if took := child.print(t, burstOutput); took > 0 {
			t.Errorf("a burst took %v", took)
		}
		for range 100 {
			pass(time.Second * burstOutput / outputPerSecond)
			child.print(t, burstOutput)
		}
		if child.longest > 0 {
			t.Errorf("it had to wait for %v", child.longest)
		}
		_ = child.Close()
		c.readers.Wait()
	})
}

func TestFloodOfOutputIsReadAtItsPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, child := printing()
		const seconds = 10
		took := child.print(t, burstOutput+seconds*outputPerSecond)
		if off := (took - seconds*time.Second).Abs(); off > 10*time.Millisecond {
			t.Errorf("what is more than the burst took %v, want %ds", took, seconds)
		}
		if child.longest > 5*time.Millisecond {
			t.Errorf("one write waited for %v", child.longest)
		}
		_ = child.Close()
		c.readers.Wait()
		if printed := int64(burstOutput+seconds*outputPerSecond) << 10 / 2; c.stats().Bytes != printed {
			t.Errorf("%d bytes of %d were read", c.stats().Bytes, printed)
		}
	})
}

// Both streams together have one pace.
func TestStreamsShareOnePace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, stderr := printing()
		child, host := net.Pipe()
		c.start(Stdout, &fakeSource{Conn: host})
		stdout := &writer{Conn: child, block: stderr.block}
		began := time.Now()
		done := make(chan struct{})
		go func() {
			defer close(done)
			stdout.print(t, burstOutput/2+outputPerSecond)
		}()
		stderr.print(t, burstOutput/2+outputPerSecond)
		<-done
		if off := (time.Since(began) - 2*time.Second).Abs(); off > 20*time.Millisecond {
			t.Errorf("it took %v, want 2s", time.Since(began))
		}
		_ = stderr.Close()
		_ = stdout.Close()
		c.readers.Wait()
	})
}

func TestTheEndDoesNotWaitForThePace(t *testing.T) {
	ends := map[string]func(*capture, *writer){
		"finish": func(c *capture, _ *writer) { c.finish() },
		"stop": func(c *capture, child *writer) {
			c.hurry()
			child.print(t, 8*outputPerSecond)
			c.finish()
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, child := printing()
				child.print(t, burstOutput+outputPerSecond)
				began := time.Now()
				end(c, child)
				if took := time.Since(began); took > 0 {
					t.Errorf("the end took %v", took)
				}
			})
		})
	}
}
