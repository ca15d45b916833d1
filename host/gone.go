package host

import (
	"context"
	"slices"

	"github.com/sox-host/sox-host/host/internal/slot"
	"github.com/sox-host/sox-host/host/internal/store"
)

// A plugin whose file is deleted goes on for as long as it runs, and while the store has its build. One that has neither
// can only fail, for as long as the client stays: it is taken out, as if it had never been there.

// unfiledLocked returns the slots of which the folder has no file. names are those of the folder.
func (h *Host) unfiledLocked(names []string) []*slot.Slot {
	return slices.DeleteFunc(h.orderedLocked(), func(s *slot.Slot) bool { return slices.Contains(names, s.Name()) })
}

// gone returns those of the slots that have nothing left to run, and whether others will have nothing once their processes
// have ended. One that the settings require stays: its absence is what clients have to be told.
func (h *Host) gone(unfiled []*slot.Slot) (gone []*slot.Slot, others bool) {
	for _, s := range unfiled {
		if settings, err := store.LoadSettings(h.cfg.PluginsDir, s.Name()); err == nil && settings.Required {
			continue
		}
		now, soon := s.Gone()
		if now {
			gone = append(gone, s)
		}
		others = others || soon
	}
	return gone, others
}

// dismiss ends slots that no client and no command can reach any more.
func (h *Host) dismiss(gone []*slot.Slot) {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	for _, s := range gone {
		h.log.Info("plugin taken out: no file, process or build of it is left", "plugin", s.Name())
		s.Close(now)
	}
}
