//go:build unix

package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sox-host/sox-host/host/internal/store"
)

func TestDoctorWarnsOfSecretsThatOthersMayRead(t *testing.T) {
	for name, c := range map[string]struct {
		file, text string
		mode       os.FileMode
		want       string // what it has; "" for no warning
	}{
		"settings":          {"notes.json", `{"env":{"TOKEN":"s3cret"}}`, 0o644, `"env"`},
		"by_the_group":      {"notes.json", `{"env":{"TOKEN":"s3cret"}}`, 0o640, `"env"`},
		"private":           {"notes.json", `{"env":{"TOKEN":"s3cret"}}`, 0o600, ""},
		"no_env":            {"notes.json", `{"args":["--fast"],"env":{}}`, 0o644, ""},
		"names_only":        {"notes.json", `{"env_allow":["TOKEN"]}`, 0o644, ""},
		"manifest":          {"notes_v1.0.0.json", `{"command":"cat","env":{"TOKEN":"s3cret"}}`, 0o644, `"env"`},
		"headers":           {"notes_v1.0.0.json", `{"url":"https://a.example/mcp","headers":{"Authorization":"Bearer s3cret"}}`, 0o644, `"headers"`},
		"headers_by_name":   {"notes_v1.0.0.json", `{"url":"https://a.example/mcp","headers":{"Authorization":"Bearer ${TOKEN}"}}`, 0o644, ""},
		"no_file_of_ours":   {"Other.txt", `{"env":{"TOKEN":"s3cret"}}`, 0o644, ""},
		"not_a_json_object": {"notes.json", `[]`, 0o644, ""},
	} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			dir := filepath.Join(home, "plugins")
			path := filepath.Join(dir, c.file)
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, c.mode); err != nil { // whatever the umask is
				t.Fatal(err)
			}
			var found []Finding
			for _, f := range Doctor(t.Context(), DoctorOptions{Home: home, PluginsDir: dir}).Findings {
				if strings.Contains(f.Fix, "chmod") {
					found = append(found, f)
				}
				if strings.Contains(f.Text, "s3cret") {
					t.Errorf("tells the secret: %v", f)
				}
			}
			if c.want == "" {
				if len(found) > 0 {
					t.Errorf("found %v", found)
				}
				return
			}
			if len(found) != 1 || found[0].Level != LevelWarning || !strings.Contains(found[0].Text, c.want) ||
				!strings.Contains(found[0].Text, c.file) || found[0].Fix != "chmod go-rwx "+store.QuoteArg(path) || found[0].Subject != "notes" {
				t.Errorf("found %v", found)
			}
		})
	}
}
