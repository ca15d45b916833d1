package host

import (
	"context"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/sox-host/sox-host/host/internal/store"
)

// watchDelay is how long the folder must be quiet before a change is acted on: long enough for a copy to be
// seen as one change, and past the time in which a new file counts as settling.
const watchDelay = 600 * time.Millisecond

// unfiledDelay is how soon the folder is looked at again while it has no file of a plugin that the host still has: 5 s.
// When such a plugin's process ends no event of the folder tells. A look reads the folder once.
const unfiledDelay = 5 * time.Second

// watch follows the plugins folder until ctx ends: new plugins get a slot, broken ones another try, those of which
// nothing is left are taken out, and with WatchAll newer versions are upgraded to. The folder is only a hint; what is there decides.
func (h *Host) watch(ctx context.Context) {
	w, err := fsnotify.NewWatcher()
	if err == nil {
		defer func() { _ = w.Close() }()
		err = w.Add(h.cfg.PluginsDir)
	}
	if err != nil {
		h.log.Warn("the plugins folder is not watched: new plugins need a restart of the client", "error", err)
		h.scan(store.Scan)
		return
	}
	h.scan(store.Scan) // what was dropped before the watch began
	quiet, unfiled := time.NewTimer(watchDelay), time.NewTimer(unfiledDelay)
	quiet.Stop()
	defer quiet.Stop()
	defer unfiled.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case _, ok := <-w.Events: // of any kind: a chmod +x makes a plugin ready
			if !ok {
				return
			}
			quiet.Reset(watchDelay)
		case err, ok := <-w.Errors:
			if !ok {
				return
			}
			h.log.Warn("events of the plugins folder were lost; looking again", "error", err)
			quiet.Reset(watchDelay)
		case <-quiet.C:
			h.folderChanged(ctx)
			unfiled.Reset(unfiledDelay)
		case <-unfiled.C:
			h.mu.Lock()
			again := h.unfiled
			h.mu.Unlock()
			if again {
				h.scan(store.Scan)
				unfiled.Reset(unfiledDelay)
			}
		}
	}
}

// reconfigure reads the settings of every plugin again: which tools are shown, under which names, and in which
// order. What concerns the process itself waits for its next start. Settings that cannot be read change nothing.
func (h *Host) reconfigure() {
	h.mu.Lock()
	slots := h.orderedLocked()
	h.mu.Unlock()
	for _, s := range slots {
		settings, err := store.LoadSettings(h.cfg.PluginsDir, s.Name())
		if err != nil {
			h.log.Warn("settings not read; the ones before stay", "plugin", s.Name(), "error", err)
			continue
		}
		h.mu.Lock()
		h.order[s.Name()] = settings.Order
		h.mu.Unlock()
		h.gw.Configure(s.Name(), clientSettings(settings))
	}
}

// folderChanged acts on the folder's present content.
func (h *Host) folderChanged(ctx context.Context) {
	h.reconfigure()
	h.scan(store.Scan)
	h.mu.Lock()
	slots := h.orderedLocked()
	h.mu.Unlock()
	for _, s := range slots {
		s.Retry()
	}
	if h.cfg.Watch != WatchAll {
		return
	}
	listing, err := store.Scan(h.cfg.PluginsDir)
	if err != nil {
		return
	}
	for _, s := range slots {
		best := listing.Candidates(s.Name())
		if len(best) == 0 || best[0].Version.String() == s.Version() || h.cfg.Attach[s.Name()] != "" {
			continue
		}
		report := h.Upgrade(ctx, UpgradeRequest{Plugin: s.Name()}, nil)
		if changed(report) {
			prune(ctx, h.home.Dir())
		}
		h.log.Info("upgrade by watching the folder", "plugin", s.Name(), "result", string(report.Result), "from", report.From, "to", report.To, "error", report.Error)
	}
}
