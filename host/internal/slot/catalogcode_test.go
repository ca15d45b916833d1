package slot

import (
	"encoding/json"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// What comes back from the cache is what was listed, the hashes that decide about list_changed included.
func TestCatalogPacksWhole(t *testing.T) {
	texts := rapid.SliceOfN(rapid.String(), 1, 3)
	rapid.Check(t, func(t *rapid.T) {
		c := &Catalog{build: "b", Instructions: rapid.String().Draw(t, "instructions")}
		if rapid.Bool().Draw(t, "problems?") {
			c.Problems = texts.Draw(t, "problems")
		}
		if rapid.Bool().Draw(t, "fault?") {
			c.Faults[rapid.IntRange(0, 3).Draw(t, "which")] = "no answer"
		}
		if rapid.Bool().Draw(t, "capabilities?") {
			c.Capabilities = json.RawMessage(`{"tools":{}}`)
		}
		for _, l := range lists {
			for i := range rapid.IntRange(0, 3).Draw(t, l.member) {
				e := Entry{Key: rapid.String().Draw(t, "key"), Raw: json.RawMessage(`{"n":` + string(rune('0'+i)) + `}`)}
				e.InputSchema = rapid.String().Draw(t, "schema")
				e.ReadOnly, e.Replayable = rapid.Bool().Draw(t, "ro"), rapid.Bool().Draw(t, "replayable")
				*c.entries(l.kind) = append(*c.entries(l.kind), e)
			}
		}
		c.seal()
		raw := c.pack()
		got, err := unpackCatalog("b", raw)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, c) {
			t.Fatalf("got  %+v\nwant %+v", got, c)
		}
		cut := rapid.IntRange(0, len(raw)-1).Draw(t, "cut")
		if got, err := unpackCatalog("b", raw[:cut]); err == nil {
			t.Fatalf("cut after %d of %d bytes: %+v", cut, len(raw), got)
		}
	})
}

func TestFactsPackWhole(t *testing.T) {
	for _, f := range []*Facts{{}, {MCP: []string{"2025-11-25"}, Methods: []string{"a.b", "c"}, ReadOnly: true}} {
		got, err := unpackFacts(f.pack())
		if err != nil || !reflect.DeepEqual(got, f) {
			t.Errorf("got %+v, %v, want %+v", got, err, f)
		}
	}
	if f, err := unpackFacts([]byte(`{"mcp":["2025-11-25"]}`)); err == nil {
		t.Errorf("another layout was read as %+v", f)
	}
}
