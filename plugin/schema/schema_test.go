package schema_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sox-host/sox-host/plugin/schema"
)

func TestCanonical(t *testing.T) {
	for _, test := range []struct{ name, raw, want string }{
		{"members_sorted_at_every_level", `{"b":{"d":1,"c":2}, "a":[{"z":0,"y":0}]}`, `{"a":[{"y":0,"z":0}],"b":{"c":2,"d":1}}`},
		{"arrays_keep_their_order", `[3, 1 ,2]`, `[3,1,2]`},
		{"white_space_goes", "\t{ \"a\" :\r\n 1 } ", `{"a":1}`},
		{"numbers_get_one_spelling", `[1.0,1e2,-0,0.10]`, `[1,100,0,0.1]`},
		{"escapes_become_minimal", `"\u0061\/\u20ac\u0001"`, `"a/€\u0001"`},
		{"utf16_order_of_names", `{"\ud83d\ude00":1,"\uffff":2}`, "{\"😀\":1,\"\uffff\":2}"},
	} {
		t.Run(test.name, func(t *testing.T) {
			raw := []byte(test.raw)
			got, err := schema.Canonical([]byte("kept "), raw)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != "kept "+test.want {
				t.Errorf("got %s, want it after the kept bytes: %s", got, test.want)
			}
			if string(raw) != test.raw {
				t.Errorf("the input was changed to %s", raw)
			}
		})
	}
}

func TestCanonicalRefuses(t *testing.T) {
	for name, raw := range map[string]string{
		"nothing":        ``,
		"two_values":     `{} {}`,
		"repeated_names": `{"a":1,"a":2}`,
		"lone_surrogate": `"\ud800"`,
		"invalid_utf8":   "\"\xff\"",
		"cut":            `{"a":`,
		"byte_mark":      "\ufeff{}",
	} {
		t.Run(name, func(t *testing.T) {
			got, err := schema.Canonical([]byte("kept"), []byte(raw))
			if err == nil || string(got) != "kept" {
				t.Errorf("got %q, %v; want an error and only the kept bytes", got, err)
			}
			if _, err := schema.Hash([]byte(raw)); err == nil {
				t.Error("Hash took it")
			}
		})
	}
}

// The two ends are two processes; what they share is only this function and the
// published digest, which any sha256 of the canonical text gives.
func TestSeed_B10_both_ends_compute_the_same_hash(t *testing.T) {
	shim := `{"tools":[{"name":"echo","description":"Echoes","inputSchema":{"type":"object","properties":{"n":{"type":"number","maximum":10}}}}]}`
	backend := "{\n \"tools\" : [ { \"inputSchema\": {\"properties\":{\"n\":{\"maximum\":1e1,\"type\":\"number\"}},\"type\":\"object\"}, \"description\":\"\\u0045choes\", \"name\":\"echo\" } ] }"
	// sha256 of the text {"tools":[{"description":"Echoes","inputSchema":{"properties":
	// {"n":{"maximum":10,"type":"number"}},"type":"object"},"name":"echo"}]}
	const want = "8b3c0dad00462a0c9663758455133745e224cf8c82b1522d0b455bd566050634"
	for _, raw := range []string{shim, backend} {
		got, err := schema.Hash([]byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("hash of %s is %s, want %s", raw, got, want)
		}
	}
}

func TestSeed_B10_any_order_and_white_space_hash_the_same(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := anyJSON(3).Draw(t, "value")
		a := spell(t, value)
		b := spell(t, value)
		hashA, errA := schema.Hash(a)
		hashB, errB := schema.Hash(b)
		if errA != nil || errB != nil || hashA != hashB {
			t.Fatalf("%s: %s %v\n%s: %s %v", a, hashA, errA, b, hashB, errB)
		}
		canonical, err := schema.Canonical(nil, a)
		if err != nil {
			t.Fatal(err)
		}
		again, err := schema.Canonical(nil, canonical)
		if err != nil || !bytes.Equal(canonical, again) {
			t.Fatalf("not stable: %s, then %s %v", canonical, again, err)
		}
	})
}

func TestSeed_B10_a_changed_value_or_order_of_items_hashes_differently(t *testing.T) {
	seen := map[string]string{}
	for _, raw := range []string{
		`{"tools":[{"name":"a"},{"name":"b"}]}`,
		`{"tools":[{"name":"b"},{"name":"a"}]}`,
		`{"tools":[{"name":"a"}]}`,
		`{"tools":[{"name":"a","title":"a"},{"name":"b"}]}`,
		`{"tools":[{"name":"a "},{"name":"b"}]}`,
	} {
		hash, err := schema.Hash([]byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[hash]; ok {
			t.Errorf("%s and %s hash the same", raw, other)
		}
		seen[hash] = raw
	}
}

// anyJSON draws values built of maps, slices, strings, integers and null.
func anyJSON(depth int) *rapid.Generator[any] {
	leaves := []*rapid.Generator[any]{
		rapid.String().AsAny(), rapid.IntRange(-1000, 1000).AsAny(), rapid.Bool().AsAny(), rapid.Just[any](nil),
	}
	if depth == 0 {
		return rapid.OneOf(leaves...)
	}
	inner := rapid.Deferred(func() *rapid.Generator[any] { return anyJSON(depth - 1) })
	return rapid.OneOf(append(leaves,
		rapid.SliceOfN(inner, 0, 4).AsAny(),
		rapid.MapOfN(rapid.String(), inner, 0, 4).AsAny(),
	)...)
}

// spell writes a value with drawn member order and white space.
func spell(t *rapid.T, value any) []byte {
	space := rapid.SampledFrom([]string{"", " ", "\n\t"})
	var out bytes.Buffer
	switch v := value.(type) {
	case map[string]any:
		names := slices.Sorted(maps.Keys(v))
		if len(names) > 1 {
			names = rapid.Permutation(names).Draw(t, "order")
		}
		out.WriteString("{")
		for i, name := range names {
			if i > 0 {
				out.WriteString(",")
			}
			out.WriteString(space.Draw(t, "space"))
			out.Write(spell(t, name))
			out.WriteString(":")
			out.Write(spell(t, v[name]))
		}
		out.WriteString("}")
	case []any:
		out.WriteString("[")
		for i, item := range v {
			if i > 0 {
				out.WriteString("," + space.Draw(t, "space"))
			}
			out.Write(spell(t, item))
		}
		out.WriteString("]")
	default:
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(raw)
	}
	return out.Bytes()
}

func list(entries ...string) []json.RawMessage {
	var items []json.RawMessage
	for _, entry := range entries {
		items = append(items, json.RawMessage(entry))
	}
	return items
}

func FuzzDiffAndCanonical(f *testing.F) {
	f.Add([]byte(`{"name":"a","inputSchema":{"$ref":"#/$defs/x","$defs":{"x":{"$ref":"#"}}}}`), []byte(`{"name":"a"}`))
	f.Add([]byte(`{"name":"a","inputSchema":{"anyOf":[{"$ref":"#"},{"type":["null",5]}]}}`), []byte(`{"name":"a","inputSchema":{"oneOf":[true,false,{"$ref":"#/oneOf"}]}}`))
	f.Add([]byte(`{"name":"a","inputSchema":{"items":[{},7],"additionalItems":false,"required":"x","enum":3}}`), []byte(`{"name":"a","inputSchema":{"items":false,"prefixItems":[1],"required":[1],"enum":[{}]}}`))
	f.Add([]byte(`{"uri":"x","annotations":[]}`), []byte(`[]`))
	f.Add([]byte(`{"name":"p","arguments":[{"name":"x","required":7}]}`), []byte("\xff"))
	f.Fuzz(func(t *testing.T, old, new []byte) {
		canonical, err := schema.Canonical(nil, old)
		if err == nil {
			if again, err := schema.Canonical(nil, canonical); err != nil || !bytes.Equal(again, canonical) {
				t.Errorf("canonical form is not stable: %q, %q, %v", canonical, again, err)
			}
		}
		for _, kind := range []schema.Kind{schema.Tools, schema.Prompts, schema.Resources, schema.Templates} {
			if changes := schema.Diff(kind, list(string(old)), list(string(old))); !changes.Empty() {
				t.Errorf("a list differs from itself: %+v", changes)
			}
			changes := schema.Diff(kind, list(string(old)), list(string(new)))
			for _, change := range changes.Changed {
				if len(change.Reasons) == 0 || !strings.HasPrefix(change.Reasons[0], change.Name+": ") {
					t.Errorf("change without a reason that names it: %+v", change)
				}
			}
		}
	})
}
