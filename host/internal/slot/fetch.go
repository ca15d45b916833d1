package slot

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

// listBounds bound one plugin's lists. What is beyond them is left out, and Problems says so, which no upgrade passes.
type listBounds struct {
	pages   int // of one list
	entries int // of one list
	bytes   int // of all lists
}

// defaultListBounds: the largest servers in use list a few hundred tools. 64 MiB are 1,300 bytes for each of as many
// entries as there may be.
var defaultListBounds = listBounds{pages: 1000, entries: 50_000, bytes: 64 << 20}

// listPatience is how long a plugin's lists may take before those that have come are shown without the others: 1 s. A
// plugin at work lists in milliseconds.
const listPatience = time.Second

// listing is what came of reading one list.
type listing struct {
	entries  []Entry
	problems []string // entries left out, and why
	fault    error    // why it could not be read, or not to its end; nil = it was
}

func (l *listing) problem(format string, args ...any) {
	if len(l.problems) <= maxProblems { // one more than are named
		l.problems = append(l.problems, fmt.Sprintf(format, args...))
	}
}

// take adds one list to the catalog.
func (c *Catalog) take(i int, l listing) {
	*c.entries(lists[i].kind), c.pending[i] = l.entries, false
	if l.fault != nil {
		c.Faults[i] = l.fault.Error()
		c.fault = cmp.Or(c.fault, l.fault)
	}
	for _, p := range l.problems {
		c.problem(p)
	}
}

// fetchCatalog lists everything over an open session. A plugin that serves no MCP has an empty catalog. Invalid
// entries are left out and named in Problems; a list that cannot be read is named in Faults, and takes no other one
// along. An error means that the connection, or ctx, has ended.
//
// early, if it is not nil, gets a copy of what has come once that takes longer than listPatience, and again with each
// further list.
func (g *generation) fetchCatalog(ctx context.Context, s *Session, hello greeting, early func(*Catalog)) (*Catalog, error) {
	c := &Catalog{Capabilities: hello.capabilities, Instructions: hello.instructions, build: g.build.SHA256}
	defer c.seal()
	if !g.serves(s) {
		return c, nil
	}
	if early == nil {
		return c, g.readLists(ctx, s, hello, c.take)
	}
	type result struct {
		i int
		l listing
	}
	came := make(chan result, len(lists)) // the reader never waits
	var err error                         // set before came is closed
	// Ends with the last list, each of which is bounded; what is below waits for it.
	g.slot.work.Go(func() {
		err = g.readLists(ctx, s, hello, func(i int, l listing) { came <- result{i, l} })
		close(came)
	})
	patience := time.NewTimer(listPatience)
	defer patience.Stop()
	c.pending = [4]bool{true, true, true, true}
	for overdue := false; ; {
		select {
		case r, more := <-came:
			if !more {
				return c, err
			}
			c.take(r.i, r.l)
		case <-patience.C:
			overdue = true
		}
		if overdue && c.pending != [4]bool{true, true, true, true} && c.pending != [4]bool{} {
			some := *c
			some.seal()
			early(&some)
		}
	}
}

// readLists reads one list after the other: many servers answer in that order anyway.
func (g *generation) readLists(ctx context.Context, s *Session, hello greeting, take func(i int, l listing)) error {
	bytes := 0
	for i, l := range lists {
		var one listing
		if !wire.IsNull(wire.Member(hello.capabilities, l.capability)) {
			one.fault = g.readList(ctx, s, i, &one, &bytes)
			if one.fault != nil && (ctx.Err() != nil || g.ended(one.fault)) {
				return one.fault
			}
		}
		take(i, one)
	}
	return nil
}

// readList reads all pages of one list, within the start timeout. bytes counts those of all lists.
func (g *generation) readList(ctx context.Context, s *Session, i int, into *listing, bytes *int) error {
	ctx, cancel := g.slot.startContext(ctx)
	defer cancel()
	method, member, bounds := lists[i].method, lists[i].member, g.slot.cfg.lists
	var cursor json.RawMessage
	seen, cursors := make(map[string]bool), make(map[string]bool)
	for page := 1; ; page++ {
		result, err := g.conn.Call(ctx, rpc.Request{Session: s.ID, Method: method, Params: listParams(s, cursor), Cancel: true})
		if e := (*wire.Error)(nil); page == 1 && errors.As(err, &e) && e.Code == wire.CodeMethodNotFound {
			return nil // advertised, not implemented: as good as empty
		}
		if err != nil {
			return fmt.Errorf("%s: %w", method, err)
		}
		before, tooMany := len(into.entries), false
		items := wire.Member(result, member)
		var repeated []string
		ok := wire.EachElement(items, func(raw []byte) bool {
			if *bytes += len(raw); len(into.entries) == bounds.entries || *bytes > bounds.bytes {
				tooMany = true
				return false
			}
			entry, problem := newEntry(s, lists[i].kind, raw)
			switch {
			case problem != "":
				into.problem("%s", problem)
			case seen[entry.Key]:
				repeated = append(repeated, entry.Key)
			default:
				seen[entry.Key] = true
				into.entries = append(into.entries, entry)
			}
			return true
		})
		next := wire.Member(result, "nextCursor")
		last := wire.IsNull(next) || string(next) == `""`
		loops := !last && (cursors[string(next)] || len(repeated) > 0 && len(into.entries) == before)
		if !loops {
			for _, name := range repeated {
				into.problem("%s: %q is listed twice; the first one counts", method, name)
			}
		}
		switch {
		case tooMany:
			into.problem("%s: the list ends after %d entries: a plugin may list %d of a kind, with %d bytes in all", method, len(into.entries), bounds.entries, bounds.bytes)
			return nil
		case !ok:
			return fmt.Errorf("%s: the answer has no array %q", method, member)
		case last:
			return nil
		case loops:
			into.problem("%s: page %d leads back to one that came before; the list ends there", method, page)
			return nil
		case page == bounds.pages:
			into.problem("%s: the list ends after %d pages with %d entries", method, page, len(into.entries))
			return nil
		}
		cursors[string(next)] = true
		cursor = next
	}
}

func listParams(s *Session, cursor []byte) []byte {
	var params []byte
	if s.Modern() {
		params = append([]byte(`{"_meta":`), s.modernMeta()...)
	}
	if cursor != nil {
		if params == nil {
			params = []byte{'{'}
		} else {
			params = append(params, ',')
		}
		params = append(append(params, `"cursor":`...), cursor...)
	}
	if params == nil {
		return nil
	}
	return append(params, '}')
}
