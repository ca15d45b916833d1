package host

import (
	"context"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/sox-host/sox-host/host/internal/store"
)

// watchDelay is how long the folder must be quiet before a change is acted on: long enough for a copy to be
// seen as one change, and past the time in which a new file counts as settling.
const watchDelay = 600 * time.Millisecond

// againDelay is how soon the folder is looked at again where no event will tell: while it cannot be read or watched, and
// while a plugin that runs has neither a file in it nor a build in the store. 5 s, which a person waits for; a look reads the
// folder once. It is also the longest pause between two tries of a busy plugin.
const againDelay = 5 * time.Second

// watch follows the plugins folder until ctx ends: new plugins get a slot, broken ones another try, those of which
// nothing is left are taken out, and with WatchAll newer versions are upgraded to. The folder is only a hint; what is
// there decides. One that is not there, or that others can write, may be mended later.
func (h *Host) watch(ctx context.Context) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		h.log.Warn("the plugins folder is not watched: new plugins need a restart of the client", "error", err)
		h.scan(store.Scan)
		return
	}
	defer func() { _ = w.Close() }()
	h.follow(ctx, w, w.Events, w.Errors)
}

// watches is the part of a fsnotify.Watcher that says what is watched.
type watches interface {
	Add(dir string) error
	Remove(dir string) error
}

// follow is watch with a watcher and its channels.
func (h *Host) follow(ctx context.Context, w watches, events <-chan fsnotify.Event, lost <-chan error) {
	failed := w.Add(h.cfg.PluginsDir)
	watched := failed == nil
	h.scan(store.Scan) // what was dropped before the watch began
	// Of a folder that cannot be read the reason has been told.
	if !watched && !h.restless() {
		h.log.Warn("the plugins folder is not watched: it is looked at again and again", "pause", againDelay.String(), "error", failed)
	}
	quiet, busy, again := time.NewTimer(watchDelay), time.NewTimer(watchDelay), time.NewTimer(againDelay)
	quiet.Stop()
	busy.Stop()
	defer quiet.Stop()
	defer busy.Stop()
	defer again.Stop()
	var waiting []string // busy plugins, to be tried again after pause
	pause := watchDelay
	retry := func(names []string) {
		if waiting = names; len(waiting) > 0 {
			busy.Reset(pause)
		}
	}
	for {
		if again.Stop(); !watched || h.restless() {
			again.Reset(againDelay)
		}
		select {
		case <-ctx.Done():
			return
		case event, ok := <-events: // of any kind: a chmod +x makes a plugin ready
			if !ok {
				return
			}
			if event.Name == h.cfg.PluginsDir && event.Has(fsnotify.Remove|fsnotify.Rename) {
				watched = false // the watch went with the folder, and another one may have its name already
			}
			quiet.Reset(watchDelay)
		case err, ok := <-lost:
			if !ok {
				return
			}
			h.log.Warn("events of the plugins folder were lost; looking again", "error", err)
			quiet.Reset(watchDelay)
		case <-quiet.C:
			if !watched {
				watched, _ = h.lookAgain(w, watched)
			}
			pause = watchDelay
			retry(h.folderChanged(ctx))
		case <-busy.C:
			pause = min(2*pause, againDelay)
			retry(h.upgradeNewer(ctx, func(name string) bool { return slices.Contains(waiting, name) }))
		case <-again.C:
			var mended bool
			if watched, mended = h.lookAgain(w, watched); mended {
				pause = watchDelay
				retry(h.folderChanged(ctx))
			}
		}
	}
}

// restless reports that something may change of which the folder's events tell nothing.
func (h *Host) restless() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.unread || h.passing
}

// lookAgain looks at the folder without an event, and says whether it is watched now, and whether it can be read again.
func (h *Host) lookAgain(w watches, watched bool) (now, mended bool) {
	h.mu.Lock()
	unread := h.unread
	h.mu.Unlock()
	if unread || !watched { // it may be another folder than the one that was watched
		_ = w.Remove(h.cfg.PluginsDir) // fails when there was none
		watched = w.Add(h.cfg.PluginsDir) == nil
	}
	h.scan(store.Scan)
	h.mu.Lock()
	mended = unread && !h.unread
	h.mu.Unlock()
	return watched, mended
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

// folderChanged acts on the folder's present content, and returns the busy plugins, see upgradeNewer.
func (h *Host) folderChanged(ctx context.Context) (busy []string) {
	h.reconfigure()
	h.scan(store.Scan)
	h.mu.Lock()
	slots := h.orderedLocked()
	h.mu.Unlock()
	for _, s := range slots {
		s.Retry()
	}
	return h.upgradeNewer(ctx, func(string) bool { return true })
}

// upgradeNewer upgrades the wanted plugins to what is newer in the folder, with WatchAll. It returns those that were busy and
// have to be seen to again: all hosts that watch a folder move at the same moment, and one at a time may upgrade a plugin.
func (h *Host) upgradeNewer(ctx context.Context, wanted func(name string) bool) (busy []string) {
	if h.cfg.Watch != WatchAll {
		return nil
	}
	h.mu.Lock()
	slots := h.orderedLocked()
	h.mu.Unlock()
	listing, err := store.Scan(h.cfg.PluginsDir)
	if err != nil {
		return nil
	}
	for _, s := range slots {
		if !wanted(s.Name()) {
			continue
		}
		best := listing.Candidates(s.Name())
		if len(best) == 0 || best[0].Version.String() == s.Version() || h.cfg.Attach[s.Name()] != "" {
			continue
		}
		report := h.Upgrade(ctx, UpgradeRequest{Plugin: s.Name()}, nil)
		if report.Exit == ExitBusy {
			busy = append(busy, s.Name())
		}
		if changed(report) {
			prune(ctx, h.home.Dir())
		}
		h.log.Info("upgrade by watching the folder", "plugin", s.Name(), "result", string(report.Result), "from", report.From, "to", report.To, "error", report.Error)
	}
	return busy
}
