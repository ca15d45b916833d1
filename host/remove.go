package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sox-host/sox-host/host/internal/store"
)

// RemoveOptions says what to take out of the plugins folder.
type RemoveOptions struct {
	Home       string // absolute
	PluginsDir string // absolute
	Plugin     string
	Version    string // "" removes every version, and what is kept about the plugin
	KeepData   bool   // keep settings, log and the remembered choice of build
}

// Removed is the result of Remove.
type Removed struct {
	Plugin  string   `json:"plugin"`
	Version string   `json:"version,omitempty"` // "" = all of it
	Active  string   `json:"active,omitempty"`  // the version that stays active, when only one was removed
	Paths   []string `json:"paths"`
	// Serving are the process ids of hosts that go on with what they run of the plugin.
	Serving []int `json:"serving,omitempty"`
}

// Remove deletes a plugin's files: of one version, or all of them with settings, log and remembered state. A
// version that is active or pinned is refused on its own. Running hosts keep what they run until it or
// their client ends, and a remembered build in the store. The staged copies go with the next pruning of the store.
func Remove(ctx context.Context, o RemoveOptions) (Removed, error) {
	done := Removed{Plugin: o.Plugin, Paths: []string{}}
	err := remove(ctx, o, &done)
	if err != nil {
		return done, about(o.Plugin, err)
	}
	return done, nil
}

func remove(ctx context.Context, o RemoveOptions, done *Removed) error {
	p, err := openPlugin(o.Home, o.PluginsDir, o.Plugin)
	if err != nil {
		return err
	}
	version := Version{}
	if o.Version != "" {
		if version, err = store.ParseVersion(o.Version); err != nil {
			return fmt.Errorf("%w: %w", ErrUsage, err)
		}
	}
	unlock, err := p.states.Lock(ctx, o.Plugin)
	if err != nil {
		return err
	}
	defer unlock()
	if p.state, err = p.states.Load(o.Plugin); err != nil { // it may have changed before the lock
		return err
	}
	if !version.IsZero() {
		done.Version, done.Active = version.String(), p.state.Active.Version.String()
		return p.removeVersion(version, done)
	}
	for _, f := range p.files {
		if err := done.delete(f.Path, f.Path+".sha256"); err != nil {
			return err
		}
	}
	if !o.KeepData {
		if err := p.forget(ctx, o, done); err != nil {
			return err
		}
	}
	done.Serving, err = serving(ctx, o)
	return errors.Join(err, store.SyncFolder(o.PluginsDir))
}

func (p plugin) removeVersion(version Version, done *Removed) error {
	switch {
	case p.state.Active.Version == version:
		return fmt.Errorf("%w: %s is active: go to another version first, or remove the whole plugin", ErrRefused, version)
	case p.state.Pin != nil && p.state.Pin.Version == version:
		return fmt.Errorf("%w: %s is pinned: run sox-host unpin %s first", ErrRefused, version, p.name)
	}
	found := false
	for _, f := range p.files {
		if f.Version == version {
			found = true
			if err := done.delete(f.Path, f.Path+".sha256"); err != nil {
				return err
			}
		}
	}
	if !found {
		return fmt.Errorf("%w: %s: %s", store.ErrNoSuchVersion, version, p.available())
	}
	return nil
}

// available says which versions the plugins folder has.
func (p plugin) available() string {
	var versions []string
	for _, f := range p.files {
		if v := f.Version.String(); v != "" && !slices.Contains(versions, v) {
			versions = append(versions, v)
		}
	}
	if len(versions) == 0 {
		return "the plugins folder has no file of it"
	}
	return "there is " + strings.Join(versions, ", ")
}

// forget deletes what is kept about a plugin. The state itself stays, empty, so that the numbers of its generations
// are never used again.
func (p plugin) forget(ctx context.Context, o RemoveOptions, done *Removed) error {
	logFile := logPath(p.home, p.name)
	if err := done.delete(filepath.Join(o.PluginsDir, p.name+".json"), logFile, logFile+".1"); err != nil {
		return err
	}
	if p.state.Active.IsZero() && p.state.Pin == nil && len(p.state.History) == 0 {
		return nil
	}
	_, err := p.states.Update(ctx, p.name, func(s *store.PluginState) error {
		event := store.Event{Time: time.Now().UTC(), Action: "remove", From: s.Active}
		*s = store.PluginState{Generation: s.Generation, History: append(s.History, event)}
		return nil
	})
	return err
}

// delete removes files that are there. What is not a file is left.
func (r *Removed) delete(paths ...string) error {
	for _, path := range paths {
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.IsDir() {
			continue
		}
		if err == nil {
			err = os.Remove(path)
		}
		if err != nil {
			return err
		}
		r.Paths = append(r.Paths, path)
	}
	return nil
}

func logPath(home *store.Home, plugin string) string {
	return filepath.Join(home.Dir(), "logs", plugin+".log")
}

// serving lists the hosts that go on with a plugin: those that run it, and those that can start it from the store because
// the choice is kept. One that does not answer is not known to.
func serving(ctx context.Context, o RemoveOptions) ([]int, error) {
	remotes, err := Remotes(ctx, o.Home, o.PluginsDir)
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, r := range remotes {
		status, err := r.Status(ctx)
		if err != nil {
			continue
		}
		for _, p := range status.Plugins {
			runs := p.State == "active" || p.State == "starting" || len(p.Draining) > 0
			if p.Plugin == o.Plugin && (runs || o.KeepData && p.Version != "") {
				pids = append(pids, r.PID)
			}
		}
	}
	return pids, nil
}
