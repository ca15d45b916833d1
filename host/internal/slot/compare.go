package slot

import (
	"context"
	"fmt"
	"time"

	"github.com/sox-host/sox-host/plugin/schema"
)

func join(reasons []string) string {
	const most = 5
	out := ""
	for i, r := range reasons {
		if i == most {
			return out + fmt.Sprintf("; and %d more", len(reasons)-most)
		}
		if i > 0 {
			out += "; "
		}
		out += r
	}
	return out
}

// list fetches the candidate's lists for every profile in use, or for a probe's when none is. An entry that
// would have to be left out, or a list that cannot be read, fails the upgrade: the old build still serves whole lists.
// What only goes back, or starts the same again, is held up by neither.
func (u *upgrade) list(ctx context.Context) error {
	s, g := u.s, u.new
	u.catalogs, u.bridged = make(map[Profile]*Catalog), make(map[Profile]Profile)
	fetch := func(session *Session, hello greeting) error {
		p := session.Profile()
		if session.Revision == "" || u.catalogs[p] != nil {
			return nil
		}
		c, err := g.fetchCatalog(ctx, session, hello, nil)
		if err != nil && c.fault != nil { // which is more often the reason
			err = fmt.Errorf("%w; then %w", c.fault, err)
		}
		if err != nil {
			return g.explain(err)
		}
		strict := !u.req.Rollback && !u.req.Restart && !u.req.Adopt
		switch {
		case strict && c.fault != nil:
			return c.fault
		case strict && len(c.Problems) > 0:
			return fmt.Errorf("invalid entries: %s", join(c.Problems))
		}
		c.inherit(s.Catalog(p))
		u.catalogs[p] = c
		return nil
	}
	type pair struct {
		session *Session
		hello   greeting
	}
	var open []pair
	s.mu.Lock()
	for id, o := range g.opened {
		if session := s.sessions[id]; session != nil && session.Revision != "" {
			open = append(open, pair{session, o.hello})
		}
	}
	s.mu.Unlock()
	ask := func(session *Session) error {
		hello, err := g.openSession(ctx, session)
		if err != nil {
			return g.explain(err)
		}
		defer g.closeSession(session.ID)
		return fetch(session, hello)
	}
	var unserved []*Session
	for _, p := range open {
		if len(g.ready.MCP) > 0 && !g.serves(p.session) {
			unserved = append(unserved, p.session)
		} else if err := fetch(p.session, p.hello); err != nil {
			return err
		}
	}
	for _, session := range unserved { // the gateway speaks to it by such sessions, or is about to
		over := session.OtherEra()
		if u.catalogs[over.Profile()] != nil {
			continue
		}
		over.ID = probeID
		u.bridged[over.Profile()] = session.Profile()
		if err := ask(over); err != nil {
			return err
		}
	}
	if len(open) > 0 || len(g.ready.MCP) == 0 {
		return nil
	}
	return ask(probeSession())
}

// known returns the lists of the build before for a profile, as clients were shown them or from the cache, or nil.
func (u *upgrade) known(p Profile) *Catalog {
	s := u.s
	s.mu.Lock()
	old := s.catalogs[p]
	if before, ok := u.bridged[p]; ok && old == nil { // what the client was shown
		old = s.catalogs[before]
	}
	s.mu.Unlock()
	if old == nil && u.oldRef.SHA256 != "" {
		if raw, ok := s.cfg.State.LoadCatalog(s.catalogKey(u.oldRef.SHA256, p)); ok {
			old, _ = unpackCatalog(u.oldRef.SHA256, raw) // a damaged entry is a miss
		}
	}
	return old
}

// lookBack starts the build before, asks it for its lists and ends it again, where nothing of it runs and its lists are not
// known, such as in an environment that it has not been started in. Lists that were compared with nothing would break
// callers unseen. A build that does not come up serves no callers.
func (u *upgrade) lookBack(ctx context.Context) {
	s := u.s
	if u.old != nil || u.oldRef.IsZero() || u.before != nil || u.req.Rollback || u.req.Restart || u.req.Adopt {
		return
	}
	profiles := make(map[Profile]bool)
	s.mu.Lock()
	for _, session := range s.sessions {
		if session.Revision != "" {
			profiles[session.Profile()] = true
		}
	}
	s.mu.Unlock()
	if len(profiles) == 0 {
		profiles[probeSession().Profile()] = true
	}
	for p := range profiles {
		if u.known(p) != nil {
			delete(profiles, p)
		}
	}
	if len(profiles) == 0 {
		return
	}
	if end, ok := ctx.Deadline(); ok { // the rest is the candidate's
		third, cancel := context.WithTimeout(ctx, time.Until(end)/3)
		defer cancel()
		ctx = third
	}
	ctx, cancel := s.startContext(ctx)
	defer cancel()
	build, err := s.cfg.Home.Lookup(s.name, u.oldRef)
	if err == nil {
		var g *generation
		nobody := func(*Session) bool { return false }
		if g, _, err = s.bringUp(ctx, s.cfg.Home, Launch{Build: build, Trial: true}, nobody, func(Step) {}); err == nil {
			u.before = g.probe(ctx)
			g.stop(s.ladder())
		}
	}
	if err != nil {
		s.log.Warn("lists of the version before not read", "version", u.oldRef.Version.String(), "error", err)
	}
}

// diff compares the candidate's lists with those of the build before.
func (u *upgrade) diff(ctx context.Context) {
	unknown := false
	u.report.Changes, u.report.Breaking = nil, nil
	added, changed, removed := 0, 0, 0
	seen := make(map[string]bool)
	for p, c := range u.catalogs {
		old := u.known(p)
		switch {
		case old != nil:
		case u.old != nil && p == probeSession().Profile():
			old = u.old.probe(ctx)
		default:
			old = u.before
		}
		unknown = unknown || old == nil
		a, m, r := 0, 0, 0
		for i, d := range diffCatalogs(old, c) {
			if lists[i].kind == schema.Resources {
				continue // what a plugin has to read is data: notes come and go without any upgrade
			}
			a, m, r = a+len(d.Added), m+len(d.Changed), r+len(d.Removed)
			for _, group := range []struct {
				sign string
				list []schema.Change
			}{{"+", d.Added}, {"~", d.Changed}, {"-", d.Removed}} {
				for _, change := range group.list {
					line := fmt.Sprintf("%s %s %s", group.sign, lists[i].member, change.Name)
					if !seen[line] {
						seen[line] = true
						u.report.Changes = append(u.report.Changes, line)
						if change.Breaking {
							u.report.Breaking = append(u.report.Breaking, breaking(group.sign, lists[i].member, change)...)
						}
					}
				}
			}
		}
		if a+m+r > added+changed+removed {
			added, changed, removed = a, m, r
		}
	}
	u.report.Schema = fmt.Sprintf("+%d ~%d -%d", added, changed, removed)
	if unknown && !u.oldRef.IsZero() {
		u.report.Schema += fmt.Sprintf(" (what %s listed is not known)", u.oldRef.Version)
	}
}

// probe asks a running generation for its lists, when no client has yet; nil if it does not give them.
func (g *generation) probe(ctx context.Context) *Catalog {
	probe := probeSession()
	hello, err := g.openSession(ctx, probe)
	defer g.closeSession(probe.ID) // also of one that did not open as it should
	if err != nil {
		return nil
	}
	c, err := g.fetchCatalog(ctx, probe, hello, nil)
	if err != nil {
		return nil
	}
	return c
}

func breaking(sign, member string, c schema.Change) []string {
	if len(c.Reasons) > 0 {
		return c.Reasons
	}
	if sign == "-" {
		return []string{fmt.Sprintf("%s: %q is gone", member, c.Name)}
	}
	return []string{fmt.Sprintf("%s: %q changed", member, c.Name)}
}
