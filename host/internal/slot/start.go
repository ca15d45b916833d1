package slot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sox-host/sox-host/host/internal/process"
	"github.com/sox-host/sox-host/host/internal/store"
)

// recall reads what is known on disk: the build to start, and whether its last start failed.
func (s *Slot) recall() {
	state, err := s.cfg.State.Load(s.name)
	if err != nil {
		s.startFault = err.Error()
		s.log.Error("state not read", "error", err)
		return
	}
	s.build = store.Build{Plugin: s.name, Version: state.Active.Version, SHA256: state.Active.SHA256}
	if state.LastStartFailed {
		s.startFault = state.LastStartError
	}
	if raw, ok := s.cfg.State.LoadCatalog(s.catalogKey(s.build.SHA256, Profile{})); ok {
		var f Facts
		if json.Unmarshal(raw, &f) == nil {
			s.facts = &f
		}
	}
}

func (s *Slot) catalogKey(sha256 string, p Profile) store.CatalogKey {
	return store.CatalogKey{Plugin: s.name, SHA256: sha256, Revision: p.Revision, CapsHash: p.CapsHash, EnvHash: s.cfg.EnvHash}
}

// Peek loads the catalog for a profile from the cache, if it is not known yet, and starts nothing.
func (s *Slot) Peek(p Profile) {
	s.mu.Lock()
	known := p == Profile{} || s.catalogs[p] != nil
	sha := s.build.SHA256
	s.mu.Unlock()
	if known || sha == "" {
		return
	}
	raw, ok := s.cfg.State.LoadCatalog(s.catalogKey(sha, p))
	if !ok {
		return
	}
	c, err := decodeCatalog(raw)
	if err != nil { // a damaged entry is a miss
		return
	}
	s.mu.Lock()
	if s.catalogs[p] == nil && s.build.SHA256 == sha {
		s.catalogs[p] = c
	}
	s.mu.Unlock()
}

// Want makes a session known to the slot and sees to it that its catalog is known too: from memory, from the
// cache, or else by starting the plugin in the background. Observer.Changed tells when it has come.
func (s *Slot) Want(session *Session) {
	p := session.Profile()
	s.Peek(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions[session.ID] = session
	switch {
	case p == Profile{}:
		if s.facts == nil {
			s.startLocked()
		}
	case s.catalogs[p] != nil:
	case s.facts != nil && len(s.facts.MCP) == 0: // serves no MCP: there is nothing to list
	case s.active == nil:
		s.startLocked()
	case s.active.opened[session.ID] == nil:
		s.openLocked(s.active, session)
	}
}

// Catalog returns what is known of the lists for a profile, or nil.
func (s *Slot) Catalog(p Profile) *Catalog {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.catalogs[p]
}

// Facts returns what is known of the plugin's methods, or nil.
func (s *Slot) Facts() *Facts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.facts
}

// Version returns the version of the active build, or of the one that would be started.
func (s *Slot) Version() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.build.Version.String()
}

// Arriving reports whether a catalog (or, for the zero profile, the facts) is unknown but on its way: worth
// waiting for. A plugin whose last start failed or hung is not.
func (s *Slot) Arriving(p Profile) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.startFault != "" {
		return false
	}
	if p == (Profile{}) {
		return s.facts == nil && s.starting
	}
	if s.catalogs[p] != nil || s.facts != nil && len(s.facts.MCP) == 0 {
		return false
	}
	if s.starting {
		return true
	}
	if s.active == nil {
		return false
	}
	for id, o := range s.active.opened {
		if session := s.sessions[id]; session != nil && session.Profile() == p {
			return !o.done || o.err == nil && !s.active.listed[p]
		}
	}
	return false
}

// startLocked brings a generation up in the background, now or when the breaker allows it.
func (s *Slot) startLocked() {
	if s.closed || s.starting || s.active != nil || s.restart != nil {
		return
	}
	if open, wait := s.breaker.open(time.Now()); open {
		s.startLaterLocked(wait)
		return
	}
	s.starting = true
	// Ends with the start, bounded by the start timeout.
	s.work.Go(s.start)
}

// startLaterLocked arms the restart timer.
func (s *Slot) startLaterLocked(wait time.Duration) {
	if s.closed || s.restart != nil {
		return
	}
	s.restart = time.AfterFunc(wait, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.restart = nil
		s.startLocked()
	})
}

// cancelRestartLocked drops a planned restart.
func (s *Slot) cancelRestartLocked() {
	if s.restart != nil {
		s.restart.Stop()
		s.restart = nil
	}
}

// Retry starts a plugin that is broken at once, because its files changed.
func (s *Slot) Retry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.startFault == "" && s.restart == nil {
		return
	}
	s.cancelRestartLocked()
	s.breaker.reset()
	if s.active == nil && (len(s.sessions) > 0 || len(s.queue) > 0) {
		s.startLocked()
	}
}

// start brings up the build that the state names, or chooses the first one.
func (s *Slot) start() {
	done := func() {
		s.mu.Lock()
		s.starting = false
		s.mu.Unlock()
	}
	select {
	case s.op <- struct{}{}:
		defer func() { <-s.op }()
	case <-s.ctx.Done():
		done()
		return
	}
	s.mu.Lock()
	if s.active != nil || s.closed {
		s.starting = false
		s.mu.Unlock()
		s.flushQueue()
		return
	}
	s.breaker.probe()
	s.mu.Unlock()

	ctx, cancel := context.WithTimeoutCause(s.ctx, s.cfg.Settings.StartTimeout,
		fmt.Errorf("not ready within %v", s.cfg.Settings.StartTimeout))
	defer cancel()
	began := time.Now()
	build, err := s.buildToStart(ctx)
	var g *generation
	if err == nil {
		g, _, err = s.bringUp(ctx, build)
	}
	if err != nil {
		s.startFailed(err)
		return
	}
	s.log.Info("started", "version", build.Version.String(), "generation", g.num, "pid", g.backend.Pid(), "duration", time.Since(began).Round(time.Millisecond))
	s.promote(g)
}

// buildToStart returns the committed build. On the first start of a plugin it chooses the best file of the
// folder, stages it and records the choice: a newer file waits for an upgrade from then on.
func (s *Slot) buildToStart(ctx context.Context) (store.Build, error) {
	state, err := s.cfg.State.Load(s.name)
	if err != nil {
		return store.Build{}, err
	}
	if !state.Active.IsZero() {
		build, err := s.cfg.Home.Lookup(s.name, state.Active)
		if !errors.Is(err, store.ErrNotStaged) {
			return build, err
		}
		// The store was emptied: the same bytes may still lie in the folder.
		return s.restage(ctx, state.Active)
	}
	file, err := s.choose(ctx, store.Choice{Pin: state.Pin, SkipUnready: true})
	if err != nil {
		return store.Build{}, err
	}
	build, err := s.cfg.Home.Stage(ctx, file)
	if err != nil {
		return store.Build{}, err
	}
	state, err = s.cfg.State.Update(ctx, s.name, func(p *store.PluginState) error {
		if p.Active.IsZero() {
			p.Active = build.Ref()
			p.History = append(p.History, store.Event{Time: time.Now(), Action: "install", To: build.Ref()})
		}
		return nil
	})
	if err != nil {
		return store.Build{}, err
	}
	if state.Active != build.Ref() { // another host was faster
		return s.cfg.Home.Lookup(s.name, state.Active)
	}
	return build, nil
}

// choose picks a file of the plugins folder by the slot's constraint.
func (s *Slot) choose(ctx context.Context, c store.Choice) (store.File, error) {
	listing, err := store.ScanSettled(ctx, s.cfg.PluginsDir)
	if err != nil {
		return store.File{}, err
	}
	if c.Constraint == nil && s.cfg.Settings.Constraint != "" {
		constraint, err := store.ParseConstraint(s.cfg.Settings.Constraint)
		if err != nil {
			return store.File{}, err
		}
		c.Constraint = &constraint
	}
	return store.Choose(listing.Of(s.name), c)
}

// restage brings a committed build back into the store from the plugins folder.
func (s *Slot) restage(ctx context.Context, ref store.Ref) (store.Build, error) {
	listing, err := store.ScanSettled(ctx, s.cfg.PluginsDir)
	if err != nil {
		return store.Build{}, err
	}
	for _, f := range listing.Of(s.name) {
		if f.Version != ref.Version {
			continue
		}
		if b, err := s.cfg.Home.Inspect(ctx, f); err == nil && b.SHA256 == ref.SHA256 {
			return s.cfg.Home.Stage(ctx, f)
		}
	}
	return store.Build{}, fmt.Errorf("build %s (%.12s) is neither in the store nor in the plugins folder: put the file back, or run: sox-host upgrade %s", ref.Version, ref.SHA256, s.name)
}

// bringUp launches a build and opens every known session on it. Nothing is left running on failure.
func (s *Slot) bringUp(ctx context.Context, build store.Build) (*generation, Step, error) {
	if err := s.cfg.Home.Verify(build); err != nil {
		return nil, StepStart, err
	}
	g, step, err := s.launch(ctx, build)
	if err != nil {
		return nil, step, err
	}
	s.mu.Lock()
	sessions := make([]*Session, 0, len(s.sessions))
	for _, session := range s.sessions {
		sessions = append(sessions, session)
	}
	s.mu.Unlock()
	for _, session := range sessions {
		hello, err := g.openSession(ctx, session)
		if err != nil {
			select {
			case <-g.dead:
				err = fmt.Errorf("%w (%w)", err, g.deathError())
			default:
			}
			g.stop(process.DefaultLadder)
			return nil, StepOpen, err
		}
		s.mu.Lock()
		g.opened[session.ID] = &opening{done: true, hello: hello}
		s.mu.Unlock()
	}
	return g, StepOpen, nil
}

// promote makes a fresh generation the active one when there is none, and learns its lists.
func (s *Slot) promote(g *generation) {
	facts := &Facts{MCP: g.ready.MCP, Methods: g.ready.Methods}
	s.mu.Lock()
	s.starting = false
	failedBefore := s.startFault != ""
	s.startFault = ""
	if dead := g.role == ended; dead || s.closed { // it died meanwhile; generationEnded saw a candidate
		s.mu.Unlock()
		if dead {
			s.startFailed(g.deathError())
		}
		return
	}
	g.role, g.since = active, time.Now()
	s.active, s.build = g, g.build
	s.facts = facts
	var learn []func()
	for id, o := range g.opened {
		if session := s.sessions[id]; session != nil && session.Revision != "" && !g.listed[session.Profile()] {
			g.listed[session.Profile()] = false
			learn = append(learn, func() { s.learn(s.ctx, g, session, o.hello) })
		}
	}
	s.mu.Unlock()
	s.flushQueue()
	s.saveFacts(g.build.SHA256, facts)
	if failedBefore {
		s.remember(nil)
	}
	s.cfg.Observer.Changed(s)
	for _, f := range learn {
		s.work.Go(f) // ends with the lists, bounded by the start timeout
	}
}

// learn fetches the lists of one session's profile from the active generation, keeps and caches them.
func (s *Slot) learn(ctx context.Context, g *generation, session *Session, hello greeting) {
	if session.Revision == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Settings.StartTimeout)
	defer cancel()
	p := session.Profile()
	c, err := g.fetchCatalog(ctx, session, hello)
	s.mu.Lock()
	g.listed[p] = true
	old := s.catalogs[p]
	keep := err == nil && s.active == g && (!c.Empty() || old == nil || old.Empty())
	if keep {
		s.catalogs[p] = c
	}
	s.mu.Unlock()
	if err != nil {
		g.log.Warn("lists not read", "error", err)
	}
	if keep {
		s.saveCatalog(g.build.SHA256, p, c)
	}
	s.cfg.Observer.Changed(s)
}

// Relist fetches the lists again after the plugin said that they changed.
func (s *Slot) Relist(session *Session) {
	s.mu.Lock()
	g := s.active
	var o *opening
	if g != nil {
		o = g.opened[session.ID]
	}
	ok := !s.closed && o != nil && o.done && o.err == nil
	s.mu.Unlock()
	if ok {
		s.work.Go(func() { s.learn(s.ctx, g, session, o.hello) }) // bounded by the start timeout
	}
}

func (s *Slot) saveCatalog(sha256 string, p Profile, c *Catalog) {
	raw, err := json.Marshal(c)
	if err == nil {
		err = s.cfg.State.SaveCatalog(s.catalogKey(sha256, p), raw)
	}
	if err != nil {
		s.log.Warn("catalog not cached; the next start has to wait for the plugin", "error", err)
	}
}

func (s *Slot) saveFacts(sha256 string, f *Facts) {
	raw, err := json.Marshal(f)
	if err == nil {
		err = s.cfg.State.SaveCatalog(s.catalogKey(sha256, Profile{}), raw)
	}
	if err != nil {
		s.log.Warn("facts not cached", "error", err)
	}
}

// remember records whether the last start failed, for the next host.
func (s *Slot) remember(failure error) {
	_, err := s.cfg.State.Update(s.ctx, s.name, func(p *store.PluginState) error {
		p.LastStartFailed, p.LastStartError = failure != nil, ""
		if failure != nil {
			p.LastStartError = failure.Error()
		}
		return nil
	})
	if err != nil {
		s.log.Warn("start result not recorded", "error", err)
	}
}

// startFailed plans the next attempt and, when that is too far away, fails what waits.
func (s *Slot) startFailed(err error) {
	s.mu.Lock()
	s.starting = false
	if s.closed {
		s.mu.Unlock()
		return
	}
	first := s.startFault == ""
	s.startFault = err.Error()
	s.counters.startFailures++
	wait := s.breaker.failed(time.Now())
	var failed failures
	if wait > s.cfg.Settings.GiveUp {
		for _, r := range s.queue {
			failed = append(failed, failure{r: r, err: s.unavailableLocked(wait)})
		}
		s.queue = nil
	}
	s.startLaterLocked(s.cfg.Jitter(wait))
	s.mu.Unlock()

	s.log.Error("not started", "error", err, "retry_in", wait)
	failed.fail()
	if first {
		s.remember(err)
	}
	s.cfg.Observer.Changed(s)
}
