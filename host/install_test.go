package host

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sox-host/sox-host/host/internal/store"
)

// A list of digests may name files whose names begin alike: only the line of the file itself counts.
func TestDigestFilesAreReadByWholeNames(t *testing.T) {
	dir := t.TempDir()
	right, wrong := strings.Repeat("a", 64), strings.Repeat("b", 64)
	for name, c := range map[string]struct {
		text string
		want error
	}{
		"another_name_before":  {wrong + "  notes_v1.0.0-rc.1\n" + right + "  dist/notes_v1.0.0\n", nil},
		"in_capitals":          {"SHA256 (notes_v1.0.0) = " + strings.ToUpper(right) + "\n", nil},
		"other_bytes":          {wrong + " *notes_v1.0.0\n", &store.DigestError{}},
		"only_of_another_name": {right + "  xnotes_v1.0.0\n" + right + "  notes_v1.0.0.tar\n", ErrRefused},
		"no_digest":            {"see the web page", ErrRefused},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(dir, "notes_v1.0.0")
			if err := os.WriteFile(file+".sha256", []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			o := InstallOptions{File: file, PluginsDir: t.TempDir()}
			target, err := targetOf(o)
			if err != nil {
				t.Fatal(err)
			}
			err = checkDigestFiles(o, target, right)
			var digest *store.DigestError
			if _, mismatch := c.want.(*store.DigestError); mismatch != errors.As(err, &digest) || !mismatch && !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}
