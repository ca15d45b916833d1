package wrap

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sox-host/sox-host/host/internal/pace"
	"github.com/sox-host/sox-host/host/internal/slot"
	"github.com/sox-host/sox-host/plugin/wire"
)

// The slot knows that it need not pace what comes from here.
var _ slot.Paced = (*Backend)(nil)

// hearing counts what a server says unasked, and its answers.
type hearing struct{ notices, answers int }

func (h *hearing) message(_ *child, env *wire.Envelope) {
	if env.Kind == wire.Response {
		h.answers++
	} else {
		h.notices++
	}
}

func (h *hearing) unusable(*child, []byte, *wire.Error) {}

// flooding runs a child whose process writes one line n times, and returns how long it took to read them all. meanwhile
// is called once the server has to wait for its pace.
func flooding(t *testing.T, line string, n int, meanwhile func(c *child, p *fake)) (h hearing, took time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := fakes(func(p *fake) int {
			if _, err := io.WriteString(p.outW, strings.Repeat(line+"\n", n)); err != nil {
				return 1
			}
			return 0
		})
		cfg := Config{Start: s.start, MaxFrameBytes: wire.DefaultMaxFrameBytes, haste: pace.NewHaste()}
		c, err := cfg.spawn(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		go c.run(&h)
		synctest.Wait()
		if meanwhile != nil {
			meanwhile(c, s.fake(1))
		}
		<-c.ended
		took = time.Since(began)
	})
	return h, took
}

func TestPace_of_what_a_server_says_unasked(t *testing.T) {
	const (
		notice   = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"x"}}`
		question = `{"jsonrpc":"2.0","id":1,"method":"roots/list"}`
		answer   = `{"jsonrpc":"2.0","id":1,"result":{}}`
		n        = pace.BurstNotices + pace.NoticesPerSecond
	)
	// What the reader holds when the server has written everything, and ends, is not paced: 64 KiB at the most.
	within := func(took, want time.Duration) bool { return took <= want && took > want-want/4 }
	for _, line := range []string{notice, question} {
		if h, took := flooding(t, line, n, nil); h.notices != n || !within(took, time.Second) {
			t.Errorf("%d of %d notices were read in %v", h.notices, n, took)
		}
	}
	if h, took := flooding(t, answer, n, nil); h.answers != n || took > 0 {
		t.Errorf("%d of %d answers were read in %v", h.answers, n, took)
	}
	batch := fmt.Sprintf("[%s,%s]", notice, notice)
	if h, took := flooding(t, batch, n/2, nil); h.notices != n || !within(took, time.Second) {
		t.Errorf("%d of %d notices in batches were read in %v", h.notices, n, took)
	}
	if h, took := flooding(t, notice, n, func(c *child, _ *fake) { c.retire() }); h.notices != n || took > 0 {
		t.Errorf("of a server that is not wanted any more, %d of %d notices were read in %v", h.notices, n, took)
	}
	if h, took := flooding(t, notice, n, func(c *child, _ *fake) { c.haste.Hurry() }); h.notices != n || took > 0 {
		t.Errorf("in haste, %d of %d notices were read in %v", h.notices, n, took)
	}
	if _, took := flooding(t, notice, n, func(_ *child, p *fake) { p.kill() }); took > 0 {
		t.Errorf("the end of the server took %v", took)
	}
}
