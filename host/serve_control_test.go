package host

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sox-host/sox-host/plugin/socket"
)

func TestLogOfAnOperation(t *testing.T) {
	for _, test := range []struct {
		report Report
		want   string
	}{
		{
			Report{Plugin: "notes", From: "1.0.0", To: "1.1.0", Result: ResultUpgraded},
			"[INFO]  notes 1.0.0 -> 1.1.0: result=upgraded duration=20ms",
		},
		{
			Report{Plugin: "notes", From: "1.0.0", Result: ResultFailed, Error: "no"},
			"[INFO]  notes 1.0.0: result=failed duration=20ms error=no",
		},
	} {
		var out bytes.Buffer
		h := &Host{log: hclog.New(&hclog.LoggerOptions{Output: &out, DisableTime: true})}
		h.logOperation(test.report, 20*time.Millisecond)
		if got := strings.TrimSpace(out.String()); got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}
}

func TestBusyText(t *testing.T) {
	err := busyText("notes", &socket.LockedError{Path: "x", Holder: socket.Holder{PID: 7}})
	if want := "another upgrade of notes is running (process 7): wait and try again"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
	other := errors.New("disk full")
	if got := busyText("notes", other); got != other {
		t.Errorf("got %v, want %v", got, other)
	}
}
