package store

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

var (
	errUnknownMember = errors.New("unknown member")
	errOtherType     = errors.New("cannot be")
)

// strictReference decodes as decodeStrict promises to, with the decoder it stands for.
func strictReference(data []byte, into any) error {
	err := json.Unmarshal(data, into, json.RejectUnknownMembers(true))
	var semantic *json.SemanticError
	if !errors.As(err, &semantic) {
		return located(data, err)
	}
	member := strings.ReplaceAll(strings.TrimPrefix(string(semantic.JSONPointer), "/"), "/", ".")
	if errors.Is(err, json.ErrUnknownName) {
		return fmt.Errorf("%w %q", errUnknownMember, clip(member))
	}
	return fmt.Errorf("member %q %w a JSON %s", clip(member), errOtherType, kindText(semantic.JSONKind))
}

// strictSeeds have a file of every kind of right and wrong.
var strictSeeds = []string{
	`{}`, "\t{ } \r\n", `{"env":{},"args":[],"order":-0,"exclusive":false}`,
	`{"env":{"A":"1","B":"","C":null},"args":["a",null,"\u00e9"],"order":-12,"exclusive":true,"tools":{"deny":["x"],"rename":{"a":"b"}}}`,
	`{"env":null,"args":null,"order":null,"exclusive":null,"tools":null,"lifetime":null}`,
	`{"command":"sh","args":["-c"],"env_allow":["A*"],"cwd":"/","url":"https://a","headers":{"X":"y"},"headers_file":"f","transport":"sse"}`,
	`{"requird":true}`, `{"Env":{}}`, `{"":1}`, `{"RemoteSpec":{}}`, `{"tools":{"alow":[]}}`, `{"a/b~c":1}`,
	`{"env":{"a/b~c":1}}`, `{"exclusive":"yes"}`, `{"exclusive":0}`, `{"args":["a",1]}`, `{"args":["a",["b"]]}`, `{"args":{}}`,
	`{"args":"x"}`, `{"env":true}`, `{"env":[1]}`, `{"env":{"A":{"B":1}}}`, `{"tools":"all"}`, `{"tools":[]}`, `{"lifetime":{}}`,
	`{"order":1.5}`, `{"order":1e3}`, `{"order":99999999999999999999}`, `{"order":"1"}`, `{"order":true}`,
	`{"args":[],"args":[]}`, `{"env":{"A":"1","A":"1"}}`, `{"exclusive":true,"exclusive":true}`,
	`{} x`, `{}{}`, "{}\x00", `{`, `{"args"`, `{"args":`, `{"args":[`, `{"args":["a"`, `{"args":["a"}`, `{"args":[}`, `{a:1}`, `{"order":01}`, `{"order":1,}`,
	`{"exclusive":tru}`, `{"order":-}`, `{"env":{"A":"\xff"}}`, "{\"env\":{\"A\":\"\xff\"}}", "{\"\xff\":1}", `{"\ud800":1}`, `{1:2}`, `{"args":["a" "b"]}`,
}

// compareStrict compares results and errors. Unless exact, a file that is no JSON only has to be an error: what else is
// wrong with it may be seen first, and how it is said depends on what was to be read next.
func compareStrict(t *testing.T, data string, exact bool) {
	t.Helper()
	for _, make := range []func() any{func() any { return new(settingsFile) }, func() any { return new(ManifestSpec) }} {
		got, want := make(), make()
		gotErr, wantErr := decodeStrict(strings.NewReader(data), got), strictReference([]byte(data), want)
		same := fmt.Sprint(gotErr) == fmt.Sprint(wantErr) ||
			// The reference does not know what was meant, nor what to write, see TestBadSettings.
			errors.Is(wantErr, errUnknownMember) && strings.HasPrefix(fmt.Sprint(gotErr), wantErr.Error()+": did you mean ") ||
			errors.Is(wantErr, errOtherType) && strings.HasPrefix(fmt.Sprint(gotErr), wantErr.Error()+": write ") ||
			!exact && gotErr != nil && wantErr != nil && (syntactic(gotErr) || syntactic(wantErr))
		if !same {
			t.Errorf("%T of %q: %v, want %v", got, data, gotErr, wantErr)
		}
		if gotErr == nil && !reflect.DeepEqual(got, want) {
			t.Errorf("%q is %+v, want %+v", data, got, want)
		}
	}
}

// syntactic reports whether err says that a file is no JSON.
func syntactic(err error) bool {
	var syntax *jsontext.SyntacticError
	return errors.As(err, &syntax)
}

func TestDecodeStrict(t *testing.T) {
	for _, data := range strictSeeds {
		compareStrict(t, data, true)
	}
	for data, want := range map[string]string{
		"[]": "not a JSON object", "": "not a JSON object", "null": "not a JSON object",
		`{"args":["` + strings.Repeat("a", maxSmallFileBytes) + `"]}`: "longer than",
	} {
		if err := decodeStrict(strings.NewReader(data), new(settingsFile)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %q", data, err, want)
		}
	}
}

// FuzzDecodeStrict: the same is understood, and the same said about what is not.
func FuzzDecodeStrict(f *testing.F) {
	for _, data := range strictSeeds {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data string) {
		if strings.HasPrefix(strings.TrimLeft(data, " \t\r\n"), "{") {
			compareStrict(t, data, false)
		}
	})
}
