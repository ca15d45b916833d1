package sdk

import (
	"bytes"
	"encoding/json"
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
	general, err := in.schema.Resolve(&jsonschema.ResolveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var instance any
	if err := json.Unmarshal([]byte(params), &instance); err != nil {
		t.Fatal(err)
	}
	if err := general.Validate(instance); err != nil {
		t.Errorf("its own schema refuses it: %v", err)
	}
}

// jsonEqual compares without regard to the order of members.
func jsonEqual(a []byte, b string) bool {
	left, right := jsontext.Value(bytes.Clone(a)), jsontext.Value(b)
	return left.Canonicalize(jsontext.CanonicalizeRawInts(false)) == nil && right.Canonicalize(jsontext.CanonicalizeRawInts(false)) == nil &&
		string(left) == string(right)
}

// The quick check has to agree with the general validator on everything that decodes.
func TestShapeAgreesWithTheValidator(t *testing.T) {
	in := newInput[shaped]("shaped", nil)
	general, err := in.schema.Resolve(&jsonschema.ResolveOptions{})
	if err != nil {
		t.Fatal(err)
	}
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
		if err := jsonv2.Unmarshal([]byte(tt.params), &v, strict); err != nil {
			t.Errorf("%s does not decode: %v", tt.params, err)
		}
		if got := in.shape.check([]byte(tt.params), ""); got != tt.want {
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
