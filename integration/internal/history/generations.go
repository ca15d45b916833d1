package history

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// span is one generation of a plugin: a version, and the time in which it may have been the active one.
type span struct {
	version string
	from    time.Duration // earliest moment of its cutover
	to      time.Duration // latest moment of the next one
}

const forever = time.Duration(math.MaxInt64)

// spans are the generations of a plugin, in order.
func (h *History) spans(plugin string) []span {
	first, ok := h.First[plugin]
	if !ok {
		return nil
	}
	all := []span{{version: first, to: forever}}
	for _, s := range h.Switches {
		if s.Plugin != plugin || s.Failed {
			continue
		}
		all[len(all)-1].to = s.Ended
		all = append(all, span{s.To, s.Began, forever})
	}
	return all
}

// possible are the first and the last generation of all that may have produced version between two moments; ok is false if none can have.
func possible(all []span, version string, from, to time.Duration) (lowest, highest int, ok bool) {
	for i, s := range all {
		if s.version != version || s.from > to || s.to < from {
			continue
		}
		if !ok {
			lowest = i
		}
		highest, ok = i, true
	}
	return lowest, highest, ok
}

// seen is what one client saw of a plugin: which generations it may have been, and when.
type seen struct {
	what            string
	from, to        time.Duration
	lowest, highest int
}

// versions decides I7.
func (c *checker) versions() {
	for plugin := range c.First {
		all := c.spans(plugin)
		var observed []seen
		for _, op := range c.Ops {
			if op.Plugin != plugin || op.Answers == 0 || op.Version == "" {
				continue
			}
			lowest, highest, ok := possible(all, op.Version, op.Invoked, op.Answered)
			if !ok {
				c.fail("I7", "%s of %s was answered by version %s, which was not active between %v and %v", op.Nonce, plugin, op.Version, op.Invoked, op.Answered)
				continue
			}
			observed = append(observed, seen{op.Nonce, op.Invoked, op.Answered, lowest, highest})
		}
		c.neverBack("I7", plugin, observed)
	}
}

// neverBack checks that nothing which began after something else had ended shows an older generation.
func (c *checker) neverBack(invariant, plugin string, observed []seen) {
	byEnd := slices.Clone(observed)
	slices.SortFunc(byEnd, func(a, b seen) int { return cmp.Compare(a.to, b.to) })
	slices.SortFunc(observed, func(a, b seen) int { return cmp.Compare(a.from, b.from) })
	newest, what, next := 0, "", 0
	for _, o := range observed {
		for ; next < len(byEnd) && byEnd[next].to < o.from; next++ {
			if byEnd[next].lowest > newest {
				newest, what = byEnd[next].lowest, byEnd[next].what
			}
		}
		if o.highest < newest {
			c.fail(invariant, "%s of %s shows generation %d, after %s had shown %d", o.what, plugin, o.highest+1, what, newest+1)
		}
	}
}

// lists decides I8.
func (c *checker) lists() {
	if c.Lists == nil {
		return
	}
	for plugin, lists := range c.Lists {
		all := c.spans(plugin)
		var observed []seen
		for i, l := range c.Listings {
			lowest, highest, ok := -1, -1, false
			for version, tools := range lists {
				if !slices.Equal(tools, l.Tools[plugin]) {
					continue
				}
				// Versions may have the same list: then it may be any of them.
				if low, high, found := possible(all, version, l.Asked, l.Answered); found {
					if !ok || low < lowest {
						lowest = low
					}
					highest, ok = max(highest, high), true
				}
			}
			if !ok {
				c.fail("I8", "list %d shows %s with the tools %s, which no version had that was active between %v and %v: a mix, or too short",
					i+1, plugin, strings.Join(l.Tools[plugin], " "), l.Asked, l.Answered)
				continue
			}
			observed = append(observed, seen{fmt.Sprintf("list %d", i+1), l.Asked, l.Answered, lowest, highest})
		}
		c.neverBack("I8", plugin, observed)
	}
	c.notices()
}

// notices checks that the client gets to know of each change, by a notice or because it listed anyway, not more often than there are changes, and
// that whoever lists after a notice sees the change.
func (c *checker) notices() {
	changes := c.changes()
	slices.SortStableFunc(c.Listings, func(a, b Listing) int { return cmp.Compare(a.Asked, b.Asked) })
	if len(c.Notices) > len(changes) {
		c.fail("I8", "%d notices for %d changes of the lists", len(c.Notices), len(changes))
	}
	for _, s := range changes {
		noticed := slices.ContainsFunc(c.Notices, func(at time.Duration) bool { return at >= s.Began })
		listed := slices.ContainsFunc(c.Listings, func(l Listing) bool {
			return l.Answered >= s.Began && slices.Equal(l.Tools[s.Plugin], c.Lists[s.Plugin][s.To])
		})
		if !s.Uncertain && !noticed && !listed {
			c.fail("I8", "no notice after %s was switched to %s, which has other tools", s.Plugin, s.To)
		}
	}
	for _, at := range c.Notices {
		c.noticed(at, changes)
	}
}

// noticeTime is how long after a switch its notice may still be on its way: 1 s, many times what gathers the changes of a swap into one.
const noticeTime = time.Second

// noticed checks the first list asked after a notice, if it is clear which change it belongs to: only one was under way.
func (c *checker) noticed(at time.Duration, changes []Switch) {
	var open []Switch
	for _, s := range changes {
		if s.Began <= at && at <= s.Ended+noticeTime {
			open = append(open, s)
		}
	}
	if len(open) != 1 || open[0].Uncertain {
		return
	}
	s := open[0]
	for i, l := range c.Listings {
		if l.Asked <= at {
			continue
		}
		if l.Answered <= s.Ended && !slices.Equal(l.Tools[s.Plugin], c.Lists[s.Plugin][s.To]) {
			c.fail("I8", "list %d was asked after the notice and does not show %s %s", i+1, s.Plugin, s.To)
		}
		return
	}
}

// changes are the switches after which a plugin has other tools.
func (c *checker) changes() []Switch {
	active := map[string]string{}
	for plugin, version := range c.First {
		active[plugin] = version
	}
	var changes []Switch
	for _, s := range c.Switches {
		if s.Failed {
			continue
		}
		lists := c.Lists[s.Plugin]
		if !slices.Equal(lists[active[s.Plugin]], lists[s.To]) {
			changes = append(changes, s)
		}
		active[s.Plugin] = s.To
	}
	return changes
}
