package slot

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sox-host/sox-host/host/internal/store"
	"github.com/sox-host/sox-host/plugin/wire"
)

// recall reads what is known on disk: the build to start, and whether its last start failed.
func (s *Slot) recall() {
	if s.cfg.Attached {
		s.build = store.Build{Plugin: s.name}
		return
	}
	state, err := s.cfg.State.Recall(s.name)
	if err != nil {
		s.startFault = err.Error()
		s.log.Error("state not read", "error", err)
		return
	}
	s.build = store.Build{Plugin: s.name, Version: state.Active.Version, SHA256: state.Active.SHA256}
	if s.remembered = state.LastStartError; s.remembered != "" {
		s.startFault, s.failedSHA = s.remembered, state.LastStartSHA256
	}
	if raw, ok := s.cfg.State.LoadCatalog(s.catalogKey(s.build.SHA256, Profile{})); ok {
		s.facts, _ = unpackFacts(raw) // a damaged entry is a miss
	}
}

func (s *Slot) catalogKey(sha256 string, p Profile) store.CatalogKey {
	return store.CatalogKey{Plugin: s.name, SHA256: sha256, Revision: p.Revision, CapsHash: p.CapsHash, EnvHash: s.cfg.EnvHash, Layout: cacheLayout}
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
	c, err := unpackCatalog(sha, raw)
	if err != nil { // a damaged entry is a miss
		return
	}
	s.mu.Lock()
	if s.catalogs[p] == nil && s.build.SHA256 == sha {
		s.catalogs[p] = c
	}
	s.mu.Unlock()
}

// cachedCatalogs returns what the cache has of a build's lists, for every known profile. Never nil.
func (s *Slot) cachedCatalogs(sha256 string) map[Profile]*Catalog {
	out := make(map[Profile]*Catalog)
	s.mu.Lock()
	for _, session := range s.sessions {
		if session.Revision != "" {
			out[session.Profile()] = nil
		}
	}
	s.mu.Unlock()
	for p := range out {
		raw, ok := s.cfg.State.LoadCatalog(s.catalogKey(sha256, p))
		if c, err := unpackCatalog(sha256, raw); ok && err == nil {
			out[p] = c
		} else {
			delete(out, p) // a damaged entry is a miss
		}
	}
	return out
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
	case s.cfg.Settings.Required && s.active == nil:
		s.startLocked()
	case p == Profile{}:
		if s.facts == nil {
			s.startLocked()
		}
	case s.catalogs[p] != nil && s.catalogs[p].complete() && (s.active == nil || !s.active.unread[p]):
	case s.facts != nil && len(s.facts.MCP) == 0: // serves no MCP: there is nothing to list
	case s.active == nil:
		s.startLocked()
	default:
		s.openingLocked(s.active, session)
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

// startLocked brings a generation up in the background, now or when the breaker allows it. A restart that is
// planned is left to its time, unless that is the breaker's doubled cooldown and a request waits.
func (s *Slot) startLocked() {
	if s.closed || s.starting || s.active != nil || s.reverting != nil {
		return
	}
	gate := s.gateLocked()
	switch {
	case gate.Open:
		if s.restart == nil || len(s.queue) > 0 {
			s.cancelRestartLocked()
			s.startLaterLocked(gate.RetryAfter)
		}
		return
	case s.restart != nil && !gate.Probe:
		return // the backoff after a failure
	}
	s.cancelRestartLocked()
	s.starting = true
	// Ends with the start, bounded by the start timeout.
	s.work.Go(s.start)
}

// gateLocked asks the breaker whether a start may be tried.
func (s *Slot) gateLocked() Gate {
	if len(s.queue) > 0 {
		return s.breaker.LookUrgent()
	}
	return s.breaker.Look()
}

// startLaterLocked arms the restart timer.
func (s *Slot) startLaterLocked(wait time.Duration) {
	if s.closed || s.restart != nil {
		return
	}
	var t *time.Timer
	t = time.AfterFunc(wait, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.restart != t { // cancelled while it fired
			return
		}
		s.restart = nil
		s.startLocked()
	})
	s.restart = t
}

// cancelRestartLocked drops a planned restart.
func (s *Slot) cancelRestartLocked() {
	if s.restart != nil {
		s.restart.Stop()
		s.restart = nil
	}
}

// Retry starts a plugin that is broken at once, because its files changed or because somebody asks for it by name.
// Lists wait for it again.
func (s *Slot) Retry() {
	if s.retry() {
		s.cfg.Observer.Changed(s)
	}
}

// retry reports whether a fault that was known is now being tried again.
func (s *Slot) retry() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.startFault == "" && s.restart == nil {
		return false
	}
	s.cancelRestartLocked()
	s.breaker.Success()
	if s.active == nil && (len(s.sessions) > 0 || len(s.queue) > 0) {
		s.startLocked()
	}
	if !s.starting || s.startFault == "" {
		return false
	}
	s.startFault = ""
	return true
}

// start brings up the build that the state names, or chooses the first one.
func (s *Slot) start() {
	if !s.acquire(s.ctx) {
		s.mu.Lock()
		s.starting = false
		s.mu.Unlock()
		return
	}
	defer s.release()
	s.mu.Lock()
	if s.active != nil || s.closed { // an operation that went first has brought one up
		s.starting = false
		s.mu.Unlock()
		s.flushQueue()
		return
	}
	// Somebody's request, or the end of the whole cooldown, has led here: both may try.
	s.breaker.CheckUrgent()
	s.mu.Unlock()

	ctx, cancel := context.WithTimeoutCause(s.ctx, s.cfg.Settings.StartTimeout,
		fmt.Errorf("not ready within %v", s.cfg.Settings.StartTimeout))
	defer cancel()
	began := time.Now()
	var g *generation
	err := errRetired
	for try := 0; errors.Is(err, errRetired) && try < retiredTries; try++ {
		if g, err = s.bringUpCommitted(ctx); err == nil {
			err = s.promote(g)
		}
	}
	switch {
	case errors.Is(err, errClosing): // which stops it
	case err != nil:
		s.startFailed(err)
	default:
		s.log.Info("started", "version", g.build.Version.String(), "generation", g.num, "pid", g.backend.Pid(), "duration", time.Since(began).Round(time.Millisecond))
	}
}

// bringUpCommitted brings up the committed build. On the first start of a plugin the best file of the folder is
// chosen, and recorded once it has come up: from then on a newer file waits for an upgrade, while a first build
// that cannot start may be repaired under the same name.
func (s *Slot) bringUpCommitted(ctx context.Context) (*generation, error) {
	nobody := func(*Session) bool { return false }
	if s.cfg.Attached { // nothing is chosen, and nothing recorded
		g, _, err := s.bringUp(ctx, s.cfg.Home, Launch{Build: store.Build{Plugin: s.name}}, nobody, func(Step) {})
		return g, err
	}
	for {
		build, first, err := s.buildToStart(ctx)
		s.mu.Lock()
		s.tryingSHA = build.SHA256
		s.mu.Unlock()
		if err != nil {
			return nil, err
		}
		g, _, err := s.bringUp(ctx, s.cfg.Home, Launch{Build: build}, nobody, func(Step) {})
		if err != nil || !first {
			return g, err
		}
		state, err := s.cfg.State.Update(ctx, s.name, func(p *store.PluginState) error {
			if p.Active.IsZero() && (p.Pin == nil || meets(build.Ref(), *p.Pin)) {
				p.Active = build.Ref()
				p.History = append(p.History, store.Event{Time: time.Now(), Action: "install", To: build.Ref()})
			}
			return nil
		})
		if err == nil && state.Active == build.Ref() {
			return g, nil
		}
		g.stop(s.ladder())
		if err != nil {
			return nil, err
		}
		// Another host was faster, with other bytes: those are the ones to run. Or a pin was: to what it names.
	}
}

// buildToStart returns the committed build or, when there is none yet, the best file of the folder, staged: the
// first.
func (s *Slot) buildToStart(ctx context.Context) (build store.Build, first bool, err error) {
	state, err := s.cfg.State.Load(s.name)
	if err != nil {
		return store.Build{}, false, err
	}
	if state.Active.IsZero() {
		file, err := s.choose(ctx, store.Choice{Pin: state.Pin, SkipUnready: true})
		if err != nil {
			return store.Build{}, false, err
		}
		build, err = s.cfg.Home.Stage(ctx, file)
		return build, true, err
	}
	build, err = s.cfg.Home.Lookup(s.name, state.Active)
	if errors.Is(err, store.ErrNotStaged) {
		// The store was emptied: the same bytes may still lie in the folder.
		build, err = s.restage(ctx, state.Active)
	}
	return build, false, err
}

// choose picks a file of the plugins folder by the constraint that the settings name now.
func (s *Slot) choose(ctx context.Context, c store.Choice) (store.File, error) {
	listing, err := store.ScanSettled(ctx, s.cfg.PluginsDir)
	if err != nil {
		return store.File{}, err
	}
	if c.Constraint == nil && s.cfg.Constraint != nil {
		if text := s.cfg.Constraint(); text != "" {
			constraint, err := store.ParseConstraint(text)
			if err != nil {
				return store.File{}, err
			}
			c.Constraint = &constraint
		}
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

// bringUp launches a build of home's store and opens every known session on it. Nothing is left running on failure. must says
// which sessions it may not refuse. at is told the steps; the returned one is where it failed.
func (s *Slot) bringUp(ctx context.Context, home *store.Home, l Launch, must func(*Session) bool, at func(Step)) (*generation, Step, error) {
	if !s.cfg.Attached {
		if err := home.Verify(l.Build); err != nil {
			return nil, StepStart, err
		}
	}
	g, step, err := s.launch(ctx, l)
	if err != nil {
		return nil, step, err
	}
	at(StepReady)
	at(StepOpen)
	for {
		session := s.unopened(g)
		if session == nil {
			s.dropRefused(g)
			return g, StepOpen, nil
		}
		hello, err := g.openSession(ctx, session)
		var refusal *wire.Error
		if err != nil && (!errors.As(err, &refusal) || must(session)) {
			err = g.explain(err) // before it is stopped: that would be the reason
			g.stop(s.ladder())
			return nil, StepOpen, err
		}
		if err != nil {
			g.log.Warn("session not opened", "error", err)
		}
		s.mu.Lock()
		known := s.sessions[session.ID] != nil
		if known {
			g.opened[session.ID] = &opening{done: true, err: err, hello: hello}
			if err != nil {
				g.refused = err.Error()
			}
		}
		s.mu.Unlock()
		if !known { // it was closed meanwhile
			g.closeSession(session.ID)
		}
	}
}

// dropRefused takes the sessions that a candidate refused out again: the next request of one tries again.
func (s *Slot) dropRefused(g *generation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, o := range g.opened {
		if o.err != nil {
			delete(g.opened, id)
			g.halfOpen[id] = true
		}
	}
}

// unopened returns the oldest session that a candidate has not been told of, or nil.
func (s *Slot) unopened(g *generation) (oldest *Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, session := range s.sessions {
		if g.opened[id] == nil && (oldest == nil || id < oldest.ID) {
			oldest = session
		}
	}
	return oldest
}

// promote makes a fresh generation the active one when there is none, and learns its lists. The caller holds
// op. The error says how the generation has ended, or is errClosing.
func (s *Slot) promote(g *generation) error {
	facts := &Facts{MCP: g.ready.MCP, Methods: g.ready.Methods, ReadOnly: g.ready.ReadOnly}
	s.mu.Lock()
	if s.closed {
		s.starting = false
		s.mu.Unlock()
		g.stop(closingLadder) // Close may not have seen it
		return errClosing
	}
	if g.role == ended { // it died meanwhile; generationEnded saw a candidate
		s.mu.Unlock()
		return g.deathError()
	}
	s.starting = false
	s.startFault = ""
	g.role, g.since = active, time.Now()
	s.active, s.build = g, g.build
	s.facts = facts
	refusal, opened := g.refused, len(g.opened) > 0 // a process that serves no session has shown nothing
	g.catchUpLocked()
	s.armIdleLocked(s.cfg.Settings.IdleRetire)
	s.mu.Unlock()
	_ = g.conn.Flush() // a write error ends the connection
	s.flushQueue()
	s.mu.Lock()
	if s.active == g && !s.closed { // after the calls that wait: somebody wants their answers
		s.learnAllLocked(g)
	}
	s.mu.Unlock()
	s.saveFacts(g.build.SHA256, facts)
	s.remember("")
	if opened || refusal != "" {
		s.recordRefusal(refusal)
	}
	s.cfg.Observer.Changed(s)
	return nil
}

func (s *Slot) saveCatalog(sha256 string, p Profile, c *Catalog) {
	if s.cfg.Attached { // another process may be behind it the next time
		return
	}
	if err := s.cfg.State.SaveCatalog(s.catalogKey(sha256, p), c.pack()); err != nil {
		s.log.Warn("catalog not cached; the next start has to wait for the plugin", "error", err)
	}
}

func (s *Slot) saveFacts(sha256 string, f *Facts) {
	if s.cfg.Attached {
		return
	}
	if err := s.cfg.State.SaveCatalog(s.catalogKey(sha256, Profile{}), f.pack()); err != nil {
		s.log.Warn("facts not cached", "error", err)
	}
}

// remember records why the last start failed, for the next host; "" means that it did not.
func (s *Slot) remember(failure string) {
	if s.cfg.Attached {
		return
	}
	s.mu.Lock()
	sha := ""
	if failure != "" {
		sha = s.tryingSHA
	}
	known := s.remembered == failure && s.failedSHA == sha
	s.mu.Unlock()
	if known {
		return
	}
	_, err := s.cfg.State.Update(s.ctx, s.name, func(p *store.PluginState) error {
		p.LastStartFailed, p.LastStartError, p.LastStartSHA256, p.LastStartTime = failure != "", failure, sha, time.Time{}
		if failure != "" {
			p.LastStartTime = time.Now().UTC()
		}
		return nil
	})
	if err != nil {
		s.log.Warn("start result not recorded", "error", err)
		return
	}
	s.mu.Lock()
	s.remembered, s.failedSHA = failure, sha
	s.mu.Unlock()
}

// startFailed plans the next attempt and fails what cannot wait for it. The caller holds op.
func (s *Slot) startFailed(err error) {
	s.mu.Lock()
	s.starting = false
	if s.closed {
		s.mu.Unlock()
		return
	}
	level := hclog.Error
	if s.cfg.Attached && s.startFault == err.Error() {
		level = hclog.Debug // it has been said, and is tried every other second
	}
	s.startFault = err.Error()
	s.counters.startFailures++
	failed, wait := s.failedLocked()
	s.mu.Unlock()

	s.log.Log(level, "not started", "error", err, "retry_in", wait)
	failed.fail()
	s.remember(err.Error())
	s.cfg.Observer.Changed(s)
}
