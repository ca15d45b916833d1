package process

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestEnviron(t *testing.T) {
	host := []string{
		"PATH=/bin", "HOME=/h", "LC_ALL=C", "XDG_RUNTIME_DIR=/r", "SSL_CERT_FILE=/c", "TZ=", "LANGUAGE=x",
		"AWS_SECRET_ACCESS_KEY=s", "GITHUB_TOKEN=t", "LD_PRELOAD=/evil.so", "DYLD_INSERT_LIBRARIES=/e",
		"NODE_OPTIONS=--require x", "PYTHONPATH=/p", "GODEBUG=x=1", "SOX_PLUGIN_FD=3", "SOX_PLUGIN_INSTANCE=q", "=odd", "noequals",
		"MULTI=a=b=c",
	}
	base := []string{"HOME=/h", "LC_ALL=C", "PATH=/bin", "SSL_CERT_FILE=/c", "TZ=", "XDG_RUNTIME_DIR=/r"}
	with := func(more ...string) []string {
		all := append(slices.Clone(base), more...)
		slices.Sort(all)
		return all
	}
	cases := []struct {
		name  string
		allow []string
		set   map[string]string
		want  []string
	}{
		{"default", nil, nil, base},
		{"named_secret", []string{"GITHUB_TOKEN"}, nil, with("GITHUB_TOKEN=t")},
		{"prefix", []string{"AWS_*"}, nil, with("AWS_SECRET_ACCESS_KEY=s")},
		{"value_with_equals", []string{"MULTI"}, nil, with("MULTI=a=b=c")},
		{"star_holds_back_what_changes_programs", []string{"*"}, nil,
			with("AWS_SECRET_ACCESS_KEY=s", "GITHUB_TOKEN=t", "LANGUAGE=x", "MULTI=a=b=c")},
		{"short_prefix_does_not_name_them", []string{"L*", "P*", "NODE*"}, nil, with("LANGUAGE=x")},
		{"named_on_purpose", []string{"LD_PRELOAD", "PYTHON*", "NODE_OPTIONS"}, nil,
			with("LD_PRELOAD=/evil.so", "NODE_OPTIONS=--require x", "PYTHONPATH=/p")},
		{"set_wins_and_empty_stays_empty", nil, map[string]string{"PATH": "/opt/bin", "HOME": "", "LD_LIBRARY_PATH": "/l"},
			[]string{"HOME=", "LC_ALL=C", "LD_LIBRARY_PATH=/l", "PATH=/opt/bin", "SSL_CERT_FILE=/c", "TZ=", "XDG_RUNTIME_DIR=/r"}},
		{"own_variables_come_only_from_set", []string{"SOX_PLUGIN_*"}, map[string]string{"SOX_PLUGIN_FD": "3"}, with("SOX_PLUGIN_FD=3")},
		{"impossible_names_are_left_out", nil, map[string]string{"": "x", "A=B": "x", "N\x00": "x", "V": "a\x00b"}, base},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := Environ(c.allow, c.set, host); !slices.Equal(got, c.want) {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

func TestLookPath(t *testing.T) {
	dir := t.TempDir()
	mode := map[string]os.FileMode{"tool": 0o755, "text": 0o644}
	for name, perm := range mode {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), perm); err != nil {
			t.Fatal(err)
		}
	}
	env := []string{"PATH=relative" + string(filepath.ListSeparator) + dir}
	tool := filepath.Join(dir, "tool")
	for name, want := range map[string]string{
		"tool":                                 tool,
		tool:                                   tool,
		"." + string(filepath.Separator) + "x": filepath.Join(dir, "x"),
	} {
		if got, err := LookPath(name, dir, env); err != nil || got != want {
			t.Errorf("LookPath(%q) = %q, %v, want %q", name, got, err, want)
		}
	}
	for _, name := range []string{"", "text", "absent"} {
		_, err := LookPath(name, dir, env)
		var failed *StartError
		if !errors.As(err, &failed) || failed.Kind != KindMissing {
			t.Errorf("LookPath(%q): %v", name, err)
		}
	}
}
