package sdk_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/sox-host/sox-host/sdk"
)

func TestLogIsOneJSONObjectALine(t *testing.T) {
	var log syncBuffer
	p := sdk.New("logs", "1.0.0")
	p.SetLogOutput(&log)
	p.Redact("token")
	l := p.Logger().With("request_id", 7)
	l.Debug("too quiet")
	l.WithGroup("http").With("token", "s3cr3t").Warn("slow", "wait", 2*time.Second, slog.Group("peer", "port", 80), "error", errors.New("late"))
	l.Error("line one\nline two")
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("log:\n%s", log.String())
	}
	var entry struct {
		Time       time.Time
		Level, Msg string
		RequestID  int `json:"request_id"`
		HTTP       struct {
			Token, Wait, Error string
			Peer               struct{ Port int }
		}
	}
	if err := json.Unmarshal([]byte(lines[0]), &entry); err != nil {
		t.Fatal(err)
	}
	if h := entry.HTTP; entry.Time.IsZero() || entry.Level != "WARN" || entry.Msg != "slow" || entry.RequestID != 7 ||
		h.Token != "[redacted]" || h.Wait != "2s" || h.Error != "late" || h.Peer.Port != 80 {
		t.Errorf("log: %s", lines[0])
	}
}

func TestLogLevelComesFromTheEnvironment(t *testing.T) {
	for level, want := range map[string]int{"trace": 4, "DEBUG": 4, "": 3, "info": 3, "nonsense": 3, "warn": 2, "error": 1, "off": 0} {
		t.Setenv(sdk.EnvLogLevel, level)
		var log syncBuffer
		p := sdk.New("logs", "1.0.0")
		p.SetLogOutput(&log)
		l := p.Logger()
		l.Debug("1")
		l.Info("2")
		l.Warn("3")
		l.Error("4")
		if got := strings.Count(log.String(), "\n"); got != want {
			t.Errorf("level %q: %d lines, want %d:\n%s", level, got, want, log.String())
		}
	}
}
