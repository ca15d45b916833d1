package gateway

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/sox-host/sox-host/plugin/schema"
	"github.com/sox-host/sox-host/plugin/wire"
)

// A list goes out in one page, since several clients read only the first. One that is longer than a line may be comes
// in several. Then the first page is shared out: what a plugin lists stands there whole if it needs no more than its
// part of the page, whatever the others list; of what needs more, the beginning does. The rest follows, in order.

// page returns the part of a list that begins at a cursor, and the cursor of the next part, "" at the end. A
// cursor names the list by its hash: once that has changed, it is unknown.
func (g *Gateway) page(v *view, kind schema.Kind, cursor []byte) (page []byte, next string, ok bool) {
	list, start := v.list(kind), 0
	if !wire.IsNull(cursor) {
		raw, err := base64.RawURLEncoding.DecodeString(string(wire.Unquote(cursor)))
		hash, at, found := strings.Cut(string(raw), " at ")
		if err != nil || !found || hash != v.cursorHash(kind) {
			return nil, "", false
		}
		if _, err := fmt.Sscanf(at, "%d", &start); err != nil || start < 1 {
			return nil, "", false
		}
	}
	if start == 0 && !g.tooLong(len(list)) {
		return list, "", true
	}
	n, more := 0, false
	page = []byte{'['}
	wire.EachElement(list, func(raw []byte) bool {
		if n++; n <= start {
			return true
		}
		if len(page) > 1 {
			if g.tooLong(len(page) + len(raw)) {
				more = true
				return false
			}
			page = append(page, ',')
		}
		page = append(page, raw...)
		return true
	})
	if more {
		next = base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%s at %d", v.cursorHash(kind), n-1))
	}
	return append(page, ']'), next, true
}

// cursorHash is a list's hash as cursors carry it.
func (v *view) cursorHash(kind schema.Kind) string {
	sum := sha256.Sum256([]byte(v.hashes[kind]))
	return hex.EncodeToString(sum[:8])
}

// fairly orders the elements of all plugins so that the first room bytes hold of each what is its part of them. It
// returns how many of each plugin's those are.
func fairly(lists [][][]byte, room int) (ordered [][]byte, first []int) {
	sizes := make([]int, len(lists))
	bySize := make([]int, len(lists))
	for i, list := range lists {
		bySize[i] = i
		for _, element := range list {
			sizes[i] += len(element) + 1 // the comma
		}
	}
	slices.SortStableFunc(bySize, func(a, b int) int { return cmp.Compare(sizes[a], sizes[b]) })
	first = make([]int, len(lists))
	for n, i := range bySize { // what the small ones leave is shared by the larger ones
		part, taken := room/(len(lists)-n), 0
		for _, element := range lists[i] {
			if taken+len(element)+1 > part {
				break
			}
			taken += len(element) + 1
			first[i]++
		}
		room -= taken
	}
	for i, list := range lists {
		ordered = append(ordered, list[:first[i]]...)
	}
	for i, list := range lists {
		ordered = append(ordered, list[first[i]:]...)
	}
	return ordered, first
}

// elements are the entries of one plugin in a merged list.
func (v *view) elements(p *part, kind schema.Kind) (out [][]byte) {
	if kind == schema.Resources { // one entry for a uri, whoever else lists it
		v.tables()
		for _, e := range p.resources {
			if v.owners[e.Key] == p {
				out = append(out, e.Raw)
			}
		}
		return out
	}
	list := append(append([]byte{'['}, p.lists[kind]...), ']')
	wire.EachElement(list, func(raw []byte) bool { out = append(out, raw); return true })
	return out
}

// paged reports that a list does not fit one page.
func (v *view) paged(kind schema.Kind) bool {
	size := 2
	for _, p := range v.parts {
		size += len(p.lists[kind]) + 1
	}
	return tooLong(size, v.limit)
}

// secondPage says for status how much of a plugin's lists stands behind the first page.
func (v *view) secondPage(i int) (problems []string) {
	for _, k := range clientLists {
		if !v.paged(k.kind) {
			continue
		}
		v.list(k.kind)
		if all, first := v.counts[k.kind][i], v.first[k.kind][i]; first < all {
			problems = append(problems, fmt.Sprintf("%s: the merged list is longer than the %d bytes of a line, and %d of this plugin's %d "+
				"entries are not on its first page, the only one that some clients read; list fewer, or choose with tools.allow and tools.deny",
				k.method, v.limit, all-first, all))
		}
	}
	slices.Sort(problems)
	return problems
}

// Problems says for status what clients are not shown of a plugin, or not at first, and why, and what it did that has no
// meaning; with "" what clients did.
func (g *Gateway) Problems(plugin string) (problems []string) {
	g.mu.Lock()
	views := make([]*view, 0, len(g.shared))
	for _, sv := range g.shared {
		views = append(views, sv.now.Load())
	}
	g.mu.Unlock()
	for _, v := range views {
		for i, p := range v.parts {
			if p.slot.Name() == plugin {
				problems = append(append(problems, p.problems...), v.secondPage(i)...)
			}
		}
	}
	slices.Sort(problems)
	return append(slices.Compact(problems), g.oddities.told(plugin)...)
}
