package slot

import (
	"errors"
	"strconv"

	"github.com/sox-host/sox-host/host/internal/packed"
)

// The layouts of what the catalog cache keeps. An entry of another layout is a miss.
const (
	catalogLayout = 2
	factsLayout   = 1
)

// cacheLayout names both in the keys of the cache.
var cacheLayout = strconv.Itoa(catalogLayout) + "." + strconv.Itoa(factsLayout)

var errLayout = errors.New("of another layout")

// pack writes all that is kept of a catalog, its hashes included: to compute them again would be most of what a start
// does with it.
func (c *Catalog) pack() []byte {
	raw := packed.AppendUint(nil, catalogLayout)
	for i, l := range lists {
		entries := *c.entries(l.kind)
		raw = packed.Append(raw, c.hashes[i])
		raw = packed.AppendUint(raw, uint64(len(entries)))
		for _, e := range entries {
			raw = packed.AppendUint(raw, e.hints())
			raw = packed.Append(packed.Append(packed.Append(raw, e.Key), e.InputSchema), e.Raw)
		}
	}
	raw = packed.Append(packed.Append(raw, c.Capabilities), c.Instructions)
	return appendTexts(appendTexts(raw, c.Problems), c.Faults[:])
}

// unpackCatalog reads what a build listed. Its entries are parts of raw.
func unpackCatalog(build string, raw []byte) (*Catalog, error) {
	r := packed.NewReader(raw)
	if r.Uint() != catalogLayout {
		return nil, errLayout
	}
	c := &Catalog{build: build}
	for i, l := range lists {
		c.hashes[i] = r.String()
		n := r.Count()
		if n == 0 {
			continue
		}
		entries := make([]Entry, n)
		for i := range entries {
			e := &entries[i]
			hints := r.Uint()
			e.ReadOnly, e.Replayable = hints&hintReadOnly != 0, hints&hintReplayable != 0
			e.Key, e.InputSchema, e.Raw = r.String(), r.String(), r.Bytes()
		}
		*c.entries(l.kind) = entries
	}
	c.Capabilities, c.Instructions = r.Bytes(), r.String()
	c.Problems = readTexts(r)
	copy(c.Faults[:], readTexts(r))
	if err := r.Err(); err != nil {
		return nil, err
	}
	return c, nil
}

const (
	hintReadOnly = 1 << iota
	hintReplayable
)

func (e Entry) hints() (hints uint64) {
	if e.ReadOnly {
		hints |= hintReadOnly
	}
	if e.Replayable {
		hints |= hintReplayable
	}
	return hints
}

func (f *Facts) pack() []byte {
	raw := packed.AppendUint(nil, factsLayout)
	if f.ReadOnly {
		raw = packed.AppendUint(raw, 1)
	} else {
		raw = packed.AppendUint(raw, 0)
	}
	return appendTexts(appendTexts(raw, f.MCP), f.Methods)
}

func unpackFacts(raw []byte) (*Facts, error) {
	r := packed.NewReader(raw)
	if r.Uint() != factsLayout {
		return nil, errLayout
	}
	f := &Facts{ReadOnly: r.Uint() != 0, MCP: readTexts(r), Methods: readTexts(r)}
	if err := r.Err(); err != nil {
		return nil, err
	}
	return f, nil
}

func appendTexts(raw []byte, texts []string) []byte {
	raw = packed.AppendUint(raw, uint64(len(texts)))
	for _, text := range texts {
		raw = packed.Append(raw, text)
	}
	return raw
}

func readTexts(r *packed.Reader) []string {
	n := r.Count()
	if n == 0 {
		return nil
	}
	texts := make([]string, n)
	for i := range texts {
		texts[i] = r.String()
	}
	return texts
}
