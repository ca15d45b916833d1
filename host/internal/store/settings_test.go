//go:build unix

package store

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestLoadSettings(t *testing.T) {
	dir := newFolder(t)
	put(t, dir, "notes.json", `{
		"env": {"NOTES_ROOT": "/data/my notes", "EMPTY": ""},
		"env_allow": ["AWS_*", "TOKEN"],
		"args": ["--name", "a b", "$HOME", "*", ""],
		"exclusive": true, "serial": true, "read_only": true, "required": true, "keep_warm": true,
		"lifetime": "private",
		"idle_retire": "10m", "start_timeout": "1.5s", "drain_timeout": "1m", "stop_timeout": "2s", "call_timeout": "90s",
		"health_timeout": "off",
		"tools": {"allow": ["a"], "deny": ["b"], "rename": {"a b": "a_b"}},
		"constraint": "~> 1.2",
		"order": -3
	}`, 0o644)
	got, err := LoadSettings(dir, "notes")
	if err != nil {
		t.Fatal(err)
	}
	constraint, err := ParseConstraint("~> 1.2")
	if err != nil {
		t.Fatal(err)
	}
	want := Settings{
		Env:      map[string]string{"NOTES_ROOT": "/data/my notes", "EMPTY": ""},
		EnvAllow: []string{"AWS_*", "TOKEN"}, Args: []string{"--name", "a b", "$HOME", "*", ""},
		Exclusive: true, Serial: true, ReadOnly: true, Required: true, KeepWarm: true,
		Lifetime:   Private,
		IdleRetire: 10 * time.Minute, StartTimeout: 1500 * time.Millisecond, DrainTimeout: time.Minute,
		StopTimeout: 2 * time.Second, CallTimeout: 90 * time.Second, HealthTimeout: -1,
		Tools:      ToolSettings{Allow: []string{"a"}, Deny: []string{"b"}, Rename: map[string]string{"a b": "a_b"}},
		Constraint: constraint, Order: -3,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestLoadSettingsMissingIsZero(t *testing.T) {
	dir := newFolder(t)
	for _, folder := range []string{dir, filepath.Join(dir, "none")} {
		if s, err := LoadSettings(folder, "notes"); err != nil || !reflect.DeepEqual(s, Settings{}) {
			t.Errorf("%+v, %v", s, err)
		}
	}
	put(t, dir, "empty.json", `{}`, 0o644)
	if s, err := LoadSettings(dir, "empty"); err != nil || !reflect.DeepEqual(s, Settings{Lifetime: Private}) {
		t.Errorf("%+v, %v", s, err)
	}
	put(t, dir, "shared.json", `{"lifetime":"shared","read_only":true}`, 0o644)
	if s, err := LoadSettings(dir, "shared"); err != nil || !reflect.DeepEqual(s, Settings{Lifetime: Shared, ReadOnly: true}) {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := LoadSettings(dir, "../x"); err == nil {
		t.Error("a path was taken as a name")
	}
}

func TestBadSettings(t *testing.T) {
	dir := newFolder(t)
	for content, reason := range map[string]string{
		`{"requird":true}`:                       `unknown member "requird": did you mean "required"?`,
		`{"strat_timeout":"1s"}`:                 `unknown member "strat_timeout": did you mean "start_timeout"?`,
		`{"tools":{"alow":[]}}`:                  `unknown member "tools.alow": did you mean "tools.allow"?`,
		`{"Env":{}}`:                             `unknown member "Env": did you mean "env"?`,
		`{"exclusive":"yes"}`:                    `member "exclusive" cannot be a JSON string: write true or false`,
		`{"args":["a",1]}`:                       `member "args.1" cannot be a JSON number: write a text in quotes`,
		`{"env":true}`:                           `member "env" cannot be a JSON boolean: write an object`,
		`{"tools":"all"}`:                        `member "tools" cannot be a JSON string: write an object`,
		`{"args":{}}`:                            `member "args" cannot be a JSON object: write a list`,
		`{"order":1.5}`:                          `member "order" cannot be a JSON number: write a whole number`,
		"{\"order\":1,\n \"order\":2}":           `line 2, column 2: member "order" is there twice: take one out`,
		`{"read_only": true,`:                    `line 1, column 20: the file ends in the middle of its object: add the }`,
		"{\n\t\"env\": {\"ä\": \"b\",}\n}":       `line 2, column 18: invalid character ','`,
		`{"order": 1, // first`:                  `line 1, column 14: invalid character '/'`,
		"{\"order\": 1}\nx":                      `line 2, column 1: there is more behind the object`,
		`{"lifetime":"forever"}`:                 `write "private" or "shared"`,
		`{"lifetime":"shared","exclusive":true}`: `"exclusive" and "lifetime": "shared" exclude each other`,
		`{"lifetime":"shared","serial":true}`:    `"serial" and "lifetime": "shared" exclude each other`,
		`{"call_timeout":"soon"}`:                `"call_timeout" is "soon": write a duration above zero`,
		`{"call_timeout":"0s"}`:                  "above zero",
		`{"stop_timeout":"-1s"}`:                 "above zero",
		`{"call_timeout":"off"}`:                 "above zero",
		`{"health_timeout":"0s"}`:                "above zero",
		`{"start_timeout":30}`:                   `member "start_timeout" cannot be a JSON number: write a duration such as "30s"`,
		`{"constraint":"~> 1"}`:                  `write "~> 1.0"`,
		`{"env":{"A=B":"c"}}`:                    `"A=B"`,
		`{"env":{"":"c"}}`:                       "not empty",
		`{"env":{"A":"\u0000"}}`:                 "NUL",
		`{"env_allow":["*"]}`:                    "prefix",
		`{"args":["\u0000"]}`:                    "NUL",
		`{"tools":{"rename":{"a":"b c"}}}`:       `turns "a" into "b c"`,
		`[]`:                                     "not a JSON object",
		`null`:                                   "not a JSON object",
		``:                                       "not a JSON object",
		`{} {}`:                                  "",
		`{"args":["` + strings.Repeat("x", maxSmallFileBytes) + `"]}`: "longer than 1048576 bytes",
	} {
		put(t, dir, "a.json", content, 0o644)
		f := scanOne(t, dir, "a.json")
		if f.Verdict != BadSettings {
			t.Errorf("%.60s is %s", content, f.Verdict)
		}
		_, err := LoadSettings(dir, "a")
		if err == nil {
			t.Errorf("%.60s was loaded", content)
			continue
		}
		contains(t, err.Error(), reason, filepath.Join(dir, "a.json"))
		contains(t, f.Reason, reason)
	}
}

func TestMembersThatAreNearToNoneAreRefusedWithoutAGuess(t *testing.T) {
	for content, want := range map[string]string{
		`{"url":"https://a"}`:    `unknown member "url"`,
		`{"tools":{"order":[]}}`: `unknown member "tools.order"`, // which is one elsewhere
		`{"":1}`:                 `unknown member ""`,
	} {
		if _, err := decodeSettings(strings.NewReader(content)); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", content, err, want)
		}
	}
}

func TestSettingsAreRefusedWhenOthersCanWriteThem(t *testing.T) {
	dir := newFolder(t)
	put(t, dir, "a.json", `{}`, 0o666)
	if _, err := LoadSettings(dir, "a"); err == nil {
		t.Error("loaded")
	} else {
		contains(t, err.Error(), "chmod go-w")
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	var folderError *FolderError
	if _, err := LoadSettings(dir, "a"); !errors.As(err, &folderError) {
		t.Errorf("got %v", err)
	}
}

func TestManifestResolved(t *testing.T) {
	m := ManifestSpec{Command: "bin/server", Args: []string{"a b", "$HOME", ""}, Env: map[string]string{"A": ""}, Cwd: "data"}
	r := m.Resolved("/plugins")
	if r.Command != "/plugins/bin/server" || r.Cwd != "/plugins/data" {
		t.Errorf("%+v", r)
	}
	r.Args[0], r.Env["A"] = "changed", "changed"
	if m.Args[0] != "a b" || m.Env["A"] != "" {
		t.Error("the copy shares memory with the original")
	}
	if r := (ManifestSpec{Command: "npx", Cwd: "/abs"}).Resolved("/plugins"); r.Command != "npx" || r.Cwd != "/abs" {
		t.Errorf("%+v", r)
	}
	if r := (ManifestSpec{Command: "/usr/bin/env"}).Resolved("/plugins"); r.Command != "/usr/bin/env" || r.Cwd != "" {
		t.Errorf("%+v", r)
	}
}

func TestManifestRefusals(t *testing.T) {
	for content, reason := range map[string]string{
		`{}`:                                   `"command" is missing`,
		`{"command":""}`:                       `"command" is missing`,
		`{"command":["sh"]}`:                   `member "command" cannot be a JSON array`,
		`{"command":"sh","shell":true}`:        `unknown member "shell"`,
		`{"command":"sh","args":["\u0000"]}`:   "NUL",
		`{"command":"sh","env":{"A=":"x"}}`:    "no = in it",
		`{"command":"sh","env_allow":["A=B"]}`: "env_allow",
	} {
		if _, err := parseManifest([]byte(content)); err == nil {
			t.Errorf("%s was accepted", content)
		} else {
			contains(t, err.Error(), reason)
		}
	}
}

func FuzzSettings(f *testing.F) {
	f.Add(`{"call_timeout":"1s","tools":{"rename":{"a":"b"}}}`)
	f.Add(`{"command":"sh","args":["x"],"env":{"A":""}}`)
	f.Add("{\"\xff\":1}")
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := decodeSettings(strings.NewReader(text)); err != nil && len(err.Error()) > 2000 {
			t.Errorf("the message repeats too much of the input: %d bytes", len(err.Error()))
		}
		_, _ = parseManifest([]byte(text))
		_, _ = ReadDigest(strings.NewReader(text), "a")
	})
}
