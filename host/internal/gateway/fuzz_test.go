package gateway

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sox-host/sox-host/plugin/wire"
)

// FuzzSession plays any lines to two plugins. Nothing may crash the host, every line it sends is one valid
// envelope without the id null, and no request is answered more often than it was sent.
func FuzzSession(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.transcript")
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		var lines []string
		for _, line := range strings.Split(string(raw), "\n") {
			if client, ok := strings.CutPrefix(line, "> "); ok {
				lines = append(lines, client)
			}
			if strings.HasPrefix(line, "die ") {
				lines = append(lines, line)
			}
		}
		f.Add([]byte(strings.Join(lines, "\n")))
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		lines := bytes.Split(script, []byte("\n"))
		if len(lines) > 40 {
			lines = lines[:40]
		}
		synctest.Test(t, func(t *testing.T) {
			s := settings["fuzz"]
			w := newWorld(t, s.cfg, s.names, s.plugins)
			defer w.close()
			asked := map[string]int{}
			for i, line := range lines {
				line = bytes.TrimRight(line, "\r")
				if name, ok := bytes.CutPrefix(line, []byte("die ")); ok {
					if p := w.newest(string(name)); p != nil {
						_ = p.conn.Close()
					}
					continue
				}
				if i%5 == 4 {
					time.Sleep(60 * time.Millisecond) // virtual time
				}
				line = bytes.ReplaceAll(line, []byte("$STATE"), w.lastState())
				count(asked, line, 1)
				w.session.Line(line)
				if i%3 != 2 {
					continue
				}
				w.session.Idle()
				synctest.Wait()
			}
			w.session.Idle()
			time.Sleep(30 * time.Second) // virtual time: waits end, retries run
			synctest.Wait()
			for _, line := range w.out.take() {
				var env wire.Envelope
				if err := wire.Scan([]byte(line), &env); err != nil {
					if !strings.HasPrefix(line, "[") || !wire.ValidValue([]byte(line)) {
						t.Fatalf("sent %q: %v", line, err)
					}
				}
				if env.NullID() {
					t.Fatalf("sent the id null: %q", line)
				}
				count(asked, []byte(line), -1)
			}
			for id, n := range asked {
				if n < 0 {
					t.Errorf("the id %s was answered %d times more than asked", id, -n)
				}
			}
		})
	})
}

// count adds by for the id of each request in a line, or of each answer.
func count(ids map[string]int, line []byte, by int) {
	if wire.EachElement(line, func(raw []byte) bool { count(ids, raw, by); return true }) {
		return
	}
	var env wire.Envelope
	var e *wire.EnvelopeError
	switch err := wire.Scan(line, &env); {
	case errors.As(err, &e):
		if e.ID != nil {
			ids[string(e.ID)] += by
		}
	case by > 0 && env.Kind == wire.Request, by < 0 && env.Kind == wire.Response:
		ids[string(env.ID())] += by
	}
}
