package sdk

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/jsonschema-go/jsonschema"
)

type shaped struct {
	Name  string                   `json:"name"`
	Count int                      `json:"count,omitempty"`
	Inner *shapedInner             `json:"inner,omitempty"`
	List  []shapedInner            `json:"list,omitempty"`
	Map   map[string]float64       `json:"map,omitempty"`
	Deep  map[string][]shapedInner `json:"deep,omitempty"`
}

type shapedInner struct {
	A string `json:"a"`
	B []int  `json:"b"`
}

// Types decode as encoding/json does it, and their schemas say so.
func TestInputTypes(t *testing.T) {
	type embedded struct {
		E string `json:"e"`
	}
	type types struct {
		Raw    json.RawMessage            `json:"raw"`
		Any    any                        `json:"any"`
		Time   time.Time                  `json:"time"`
		Bytes  []byte                     `json:"bytes"`
		Wait   time.Duration              `json:"wait"`
		Ptr    *string                    `json:"ptr"`
		Array  [2]int                     `json:"array"`
		Number json.Number                `json:"number"`
		Map    map[string]json.RawMessage `json:"map"`
		embedded
		Embedded embedded `json:"embedded"`
	}
	const params = `{"raw":{"x":[1]},"any":[1],"time":"2026-01-02T03:04:05Z","bytes":"AQI=","wait":5,"ptr":null,"array":[1,2],` +
		`"number":9007199254740993,"map":{"a":[]},"e":"x","embedded":{"e":"y"}}`
	in := newInput[types]("types", nil)
	v, err := in.decode([]byte(params))
	if err != nil {
		t.Fatal(err)
	}
	if raw, err := encode(v); err != nil || !jsonEqual(raw, params) {
		t.Errorf("decoded and encoded again\n got %s, %v\nwant %s", raw, err, params)
	}
	general := resolve(t, in.schema)
	var instance any
	if err := json.Unmarshal([]byte(params), &instance); err != nil {
		t.Fatal(err)
	}
	if err := general.Validate(instance); err != nil {
		t.Errorf("its own schema refuses it: %v", err)
	}
}

// resolve makes a general validator of a derived schema.
func resolve(t *testing.T, s *schema) *jsonschema.Resolved {
	t.Helper()
	var parsed jsonschema.Schema
	if err := json.Unmarshal(s.append(nil), &parsed); err != nil {
		t.Fatalf("%s: %v", s.append(nil), err)
	}
	general, err := parsed.Resolve(&jsonschema.ResolveOptions{})
	if err != nil {
		t.Fatalf("%s: %v", s.append(nil), err)
	}
	return general
}

// jsonEqual compares without regard to the order of members.
func jsonEqual(a []byte, b string) bool {
	left, right := jsontext.Value(bytes.Clone(a)), jsontext.Value(b)
	return left.Canonicalize(jsontext.CanonicalizeRawInts(false)) == nil && right.Canonicalize(jsontext.CanonicalizeRawInts(false)) == nil &&
		string(left) == string(right)
}

// The quick check has to agree with the general validator on everything that decodes.
func TestCheckAgreesWithTheValidator(t *testing.T) {
	in := newInput[shaped]("shaped", nil)
	general := resolve(t, in.schema)
	for _, tt := range []struct{ params, want string }{
		{`{"name":"x"}`, ``},
		{`{}`, `member "name" is missing`},
		{`null`, `member "params": want object, got null`},
		{`{"name":null}`, `member "name": want string, got null`},
		{`{"name":"x","count":null}`, `member "count": want integer, got null`},
		{`{"name":"x","inner":null}`, ``},
		{`{"name":"x","inner":{"a":"","b":[]}}`, ``},
		{`{"name":"x","inner":{"a":"","b":null}}`, ``},
		{`{"name":"x","inner":{"a":""}}`, `member "inner.b" is missing`},
		{`{"name":"x","list":null}`, ``},
		{`{"name":"x","list":[{"a":"","b":[1]},{"b":[]}]}`, `member "list.1.a" is missing`},
		{`{"name":"x","list":[null]}`, `member "list.0": want object, got null`},
		{`{"name":"x","list":[{"a":"","b":[1,null]}]}`, `member "list.0.b.1": want integer, got null`},
		{`{"name":"x","map":{"k":1,"l":null}}`, `member "map.l": want number, got null`},
		{`{"name":"x","deep":{"k":[{"a":"","b":[]}],"l":[{"a":""}]}}`, `member "deep.l.0.b" is missing`},
		{`{"na\u006de":"x"}`, ``},
	} {
		var v shaped
		if err := jsonv2.Unmarshal([]byte(tt.params), &v, strict()); err != nil {
			t.Errorf("%s does not decode: %v", tt.params, err)
		}
		if got := in.schema.check([]byte(tt.params), ""); got != tt.want {
			t.Errorf("%s\n got %q\nwant %q", tt.params, got, tt.want)
		}
		var instance any
		if err := json.Unmarshal([]byte(tt.params), &instance); err != nil {
			t.Fatal(err)
		}
		if err := general.Validate(instance); (err == nil) != (tt.want == "") {
			t.Errorf("%s: the validator says %v", tt.params, err)
		}
	}
}

// textual and opaque read and write themselves, as text and as anything.
type textual struct{ X int }

func (t textual) MarshalText() ([]byte, error) { return strconv.AppendInt(nil, int64(t.X), 10), nil }

type opaque struct{ X int }

func (o *opaque) UnmarshalJSON([]byte) error { return nil }

type (
	base struct {
		ID   int `json:"id"`
		Same string
	}
	other struct {
		Same string
	}
	recursive struct {
		Children []recursive `json:"children"`
	}
	ThroughEmbedding struct {
		*ThroughEmbedding
		X int
	}
)

func TestSchemasOfTypes(t *testing.T) {
	object := func(members, required string) string {
		if members != "" {
			members = `,"properties":{` + members + `}`
		}
		if required != "" {
			required = `,"required":[` + required + `]`
		}
		return `{"type":"object"` + members + required + `,"additionalProperties":false}`
	}
	for name, tt := range map[string]struct {
		derive func() (*schema, error)
		want   string // a schema, or part of an error
	}{
		"any":           {schemaOf[any], `{}`},
		"raw":           {schemaOf[json.RawMessage], `{}`},
		"string":        {schemaOf[*string], `{"type":"string"}`},
		"small_numbers": {schemaOf[struct{ A int8 }], object(`"A":{"type":"integer","minimum":-128,"maximum":127}`, `"A"`)},
		"unsigned": {schemaOf[struct {
			A uint32
			B uint
		}], object(`"A":{"type":"integer","minimum":0,"maximum":4294967295},"B":{"type":"integer","minimum":0}`, `"A","B"`)},
		"pointer":    {schemaOf[struct{ A *bool }], object(`"A":{"type":["null","boolean"]}`, `"A"`)},
		"bytes":      {schemaOf[struct{ A []byte }], object(`"A":{"type":["null","string"],"contentEncoding":"base64"}`, `"A"`)},
		"array":      {schemaOf[struct{ A [2]float32 }], object(`"A":{"type":"array","items":{"type":"number"},"minItems":2,"maxItems":2}`, `"A"`)},
		"map":        {schemaOf[struct{ A map[int]any }], object(`"A":{"type":["null","object"],"additionalProperties":{}}`, `"A"`)},
		"map_itself": {schemaOf[map[string]int], `{"type":"object","additionalProperties":{"type":"integer"}}`},
		"time": {schemaOf[struct {
			A time.Time
			B json.Number
		}], object(`"A":{"type":"string"},"B":{"type":"number"}`, `"A","B"`)},
		"methods": {schemaOf[struct {
			A textual
			B opaque
			C *textual
		}], object(`"A":{"type":"string"},"B":{},"C":{"type":["null","string"]}`, `"A","B","C"`)},
		"tags": {schemaOf[struct {
			A int    `json:"a,omitempty" jsonschema:"how many, say \"2\""`
			B int    `json:"b,omitzero"`
			C string `json:"-"`
			E int    `json:",string"`
			f int
		}], object(`"a":{"type":"integer","description":"how many, say \"2\""},"b":{"type":"integer"},"E":{"type":"string"}`, `"E"`)},
		"embedded": {schemaOf[struct {
			base
			X int
		}], object(`"id":{"type":"integer"},"Same":{"type":"string"},"X":{"type":"integer"}`, `"id","Same","X"`)},
		"embedded_by_pointer": {schemaOf[struct{ *other }], object(`"Same":{"type":"string"}`, ``)},
		"embedded_with_name": {schemaOf[struct {
			base  `json:"base"`
			Other other `json:"other"`
		}], object(`"other":`+object(`"Same":{"type":"string"}`, `"Same"`), `"other"`)},
		"same_depth_cancels": {schemaOf[struct {
			base
			other
		}], object(`"id":{"type":"integer"}`, `"id"`)},
		"less_deep_wins": {schemaOf[struct {
			base
			ID bool `json:"id"`
		}], object(`"Same":{"type":"string"},"id":{"type":"boolean"}`, `"Same","id"`)},
		"nothing":        {schemaOf[struct{}], object(``, ``)},
		"cycle":          {schemaOf[recursive], `recursive.Children: type sdk.recursive contains itself`},
		"cycle_embedded": {schemaOf[ThroughEmbedding], `contains itself`},
		"channel":        {schemaOf[struct{ A []chan int }], `A: type chan int has no form in JSON`},
		"map_key":        {schemaOf[map[bool]int], `type map[bool]int: JSON has no members named by a bool`},
		"empty_description": {schemaOf[struct {
			A int `jsonschema:""`
		}], `A: its jsonschema tag is empty`},
		"keyword": {schemaOf[struct {
			A int `jsonschema:"minimum=1"`
		}], `A: its jsonschema tag begins with "minimum="`},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := tt.derive()
			if err != nil {
				if !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got error %q, want %q", err, tt.want)
				}
				return
			}
			if got := string(s.append(nil)); got != tt.want {
				t.Errorf("\n got %s\nwant %s", got, tt.want)
			}
			resolve(t, s)
		})
	}
}
