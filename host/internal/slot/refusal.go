package slot

import (
	"context"
	"time"

	"github.com/sox-host/sox-host/host/internal/store"
)

// recordTimeout bounds the note about a refused session, for which nobody shall wait long: 1 s, many times what the
// small write takes.
const recordTimeout = time.Second

// recordRefusal notes for people who look later, when no host may be left to ask, why the last session was not opened;
// "" means that it was. It is for goroutines that may write a file, without mu.
func (s *Slot) recordRefusal(failure string) {
	if s.cfg.Attached {
		return
	}
	if state, err := s.cfg.State.Load(s.name); err != nil || failure == "" && state.LastRefusal == "" {
		return // nothing to take back; a state that cannot be read is told of by whoever needs it
	}
	// The host of a single question ends with the answer, and the note is made before that.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), recordTimeout)
	defer cancel()
	_, err := s.cfg.State.Update(ctx, s.name, func(p *store.PluginState) error {
		p.LastRefusal, p.LastRefusalTime = failure, time.Time{}
		if failure != "" {
			p.LastRefusalTime = time.Now().UTC()
		}
		return nil
	})
	if err != nil {
		s.log.Warn("refused session not recorded", "error", err)
	}
}
