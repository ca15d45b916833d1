package gateway

import (
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sox-host/sox-host/host/internal/slot"
)

func entries(keys ...string) (out []slot.Entry) {
	for _, key := range keys {
		out = append(out, slot.Entry{Key: key})
	}
	return out
}

// namesByKey returns the exposed names by the plugin's own.
func namesByKey(cfg *Config, keys []string, rename map[string]string) map[string]string {
	out := make(map[string]string)
	for i, name := range exposedNames(cfg, "p", entries(keys...), rename) {
		out[keys[i]] = name
	}
	return out
}

var accepted = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,46}$`)

func TestExposedNames(t *testing.T) {
	cfg := &Config{Prefixed: true, MaxNameLength: 46}
	long := strings.Repeat("x", 64)
	for _, tt := range []struct {
		name   string
		keys   []string
		rename map[string]string
		want   map[string]string // of some
	}{
		{"as_they_are", []string{"search", "a-b_c"}, nil, map[string]string{"search": "p__search", "a-b_c": "p__a-b_c"}},
		{"one_that_is_free_after_a_change", []string{"a.b"}, nil, map[string]string{"a.b": "p__a_b"}},
		{"what_stays_wins", []string{"a b", "a_b"}, nil, map[string]string{"a_b": "p__a_b"}},
		{"two_that_change_into_the_same", []string{"a b", "a.b"}, nil, nil},
		{"equal_when_cut", []string{long + "1", long + "2"}, nil, nil},
		{"accents_and_emoji", []string{"é", "ü", "🙂", "名"}, nil, nil},
		{"only_strange_characters", []string{"...", "!!!", " "}, nil, nil},
		{"a_tool_with_the_name_that_a_hash_makes", []string{"a b", "a_b", "a_b_4acdbb49"}, nil, nil},
		{"renamed", []string{"log", "x"}, map[string]string{"log": "write"}, map[string]string{"log": "p__write"}},
		{"renamed_to_a_name_that_is_taken", []string{"log", "x"}, map[string]string{"log": "x"}, map[string]string{"x": "p__x"}},
		{"two_renamed_to_one", []string{"a", "b"}, map[string]string{"a": "c", "b": "c"}, nil},
		{"swapped", []string{"a", "b"}, map[string]string{"a": "b", "b": "a"}, map[string]string{"a": "p__b", "b": "p__a"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := namesByKey(cfg, tt.keys, tt.rename)
			seen := map[string]bool{}
			for _, key := range tt.keys {
				name := got[key]
				if !accepted.MatchString(name) || !strings.HasPrefix(name, "p__") || seen[name] {
					t.Errorf("%q is exposed as %q", key, name)
				}
				seen[name] = true
				if want := tt.want[key]; want != "" && name != want {
					t.Errorf("%q is exposed as %q, want %q", key, name, want)
				}
			}
			// The order of the list decides nothing: an upgrade may change it.
			shuffled := slices.Clone(tt.keys)
			rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
			if other := namesByKey(cfg, shuffled, tt.rename); !maps.Equal(got, other) {
				t.Errorf("in another order: %v, not %v", other, got)
			}
		})
	}
}

func TestNamesOfASinglePluginAreItsOwn(t *testing.T) {
	got := namesByKey(&Config{MaxNameLength: 46}, []string{"a.b", strings.Repeat("x", 64), "log"}, map[string]string{"log": "write"})
	if got["a.b"] != "a.b" || len(got[strings.Repeat("x", 64)]) != 64 || got["log"] != "write" {
		t.Errorf("names = %v", got)
	}
}
