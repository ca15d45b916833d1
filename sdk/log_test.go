package sdk_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/sox-host/sox-host/sdk"
)

func TestSlogWritesTheSameLog(t *testing.T) {
	var log syncBuffer
	p := sdk.New("logs", "1.0.0")
	p.SetLogOutput(&log)
	p.Redact("token")
	l := p.Slog().With("request_id", 7)
	l.Debug("too quiet")
	l.WithGroup("http").With("token", "s3cr3t").Warn("slow", "wait", 2*time.Second, slog.Group("peer", "port", 80), "error", errors.New("late"))
	l.Error("line one\nline two", "", "no key")
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("log:\n%s", log.String())
	}
	var entry map[string]any
	if err := json.Unmarshal([]byte(lines[0]), &entry); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"@level": "warn", "@module": "logs", "@message": "slow", "request_id": "7",
		"http.wait": "2s", "http.peer.port": "80", "http.error": "late",
	} {
		if got := fmt.Sprint(entry[key]); got != want {
			t.Errorf("%s = %q, want %q", key, got, want)
		}
	}
	if strings.Contains(log.String(), "s3cr3t") {
		t.Errorf("log: %s", log.String())
	}
}
