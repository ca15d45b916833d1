package host

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestPruneKeepsWhatIsYoung: an old build that nothing names goes, a young one stays.
func TestPruneKeepsWhatIsYoung(t *testing.T) {
	home := t.TempDir()
	if err := os.Chmod(home, 0o700); err != nil {
		t.Fatal(err)
	}
	build := func(digit string, age time.Duration) string {
		path := filepath.Join(home, "store", strings.Repeat(digit, 64))
		at := time.Now().Add(-age)
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
		return path
	}
	old, young := build("a", keepBuilds+time.Hour), build("b", keepBuilds-time.Hour)
	prune(context.Background(), home)
	if _, err := os.Stat(old); !os.IsNotExist(err) {
		t.Errorf("the old build is still there: %v", err)
	}
	if _, err := os.Stat(young); err != nil {
		t.Errorf("the young build is gone: %v", err)
	}
}
