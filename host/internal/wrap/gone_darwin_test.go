package wrap

import (
	"syscall"
	"testing"
	"time"
)

// awaitGone waits for the end of a process that is no child of this one.
func awaitGone(t *testing.T, pid int) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	end := time.Now().Add(patience)
	for syscall.Kill(pid, 0) == nil {
		if time.Now().After(end) {
			t.Errorf("process %d is still there", pid)
			return
		}
		<-tick.C
	}
}
