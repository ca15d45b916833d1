//go:build linux || darwin

package socket

import (
	"errors"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestSeed_B12_path_has_three_tiers_and_the_first_that_fits_wins(t *testing.T) {
	const digest = "40906c71b95bdbaa" // FNV-1a of "notes"
	dirOf := func(n int) string { return "/" + strings.Repeat("d", n-1) }
	tier1 := len("/proxy-notes-" + digest + ".sock")
	tier2 := len("/proxy-" + digest + ".sock")
	for _, limit := range []int{linuxPathBytes, darwinPathBytes} {
		cases := []struct {
			name, dir, key, want string
		}{
			{"short_folder_shows_the_key", "/home/u/.sox/run", "notes", "/home/u/.sox/run/proxy-notes-" + digest + ".sock"},
			{"exactly_at_the_limit_still_shows_the_key", dirOf(limit - tier1), "notes", dirOf(limit-tier1) + "/proxy-notes-" + digest + ".sock"},
			{"one_byte_over_drops_the_key", dirOf(limit - tier1 + 1), "notes", dirOf(limit-tier1+1) + "/proxy-" + digest + ".sock"},
			{"exactly_at_the_limit_keeps_the_folder", dirOf(limit - tier2), "notes", dirOf(limit-tier2) + "/proxy-" + digest + ".sock"},
			{"folder_is_cleaned", "/home/u//.sox/x/../run/", "notes", "/home/u/.sox/run/proxy-notes-" + digest + ".sock"},
		}
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				got, err := pathWithin(c.dir, c.key, 501, limit)
				if err != nil || got != c.want {
					t.Fatalf("got %q, %v, want %q", got, err, c.want)
				}
			})
		}
		got, err := pathWithin(dirOf(limit-tier2+1), "notes", 501, limit)
		if err != nil || filepath.Dir(got) != "/tmp/sox-501" || !strings.HasPrefix(filepath.Base(got), "p-") || len(filepath.Base(got)) != len("p-.sock")+digestChars {
			t.Fatalf("folder one byte too long: got %q, %v", got, err)
		}
	}
}

func TestSeed_B12_limits_are_those_of_the_system(t *testing.T) {
	want := map[string]int{"linux": 107, "darwin": 103}[runtime.GOOS]
	if want != 0 && MaxPathBytes() != want {
		t.Fatalf("MaxPathBytes() = %d, want %d", MaxPathBytes(), want)
	}
	if got := FallbackRoot(1000); got != "/tmp/sox-1000" {
		t.Fatalf("FallbackRoot(1000) = %q", got)
	}
}

func TestSeed_B12_path_never_depends_on_the_environment(t *testing.T) {
	for _, dir := range []string{"/home/u/.sox/run", "/" + strings.Repeat("d", 200)} {
		before, err := Path(dir, "notes")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"TMPDIR", "XDG_RUNTIME_DIR", "HOME", "SOX_HOME"} {
			t.Setenv(name, "/somewhere/else")
		}
		if after, err := Path(dir, "notes"); err != nil || after != before {
			t.Fatalf("path moved from %q to %q (%v) with the environment", before, after, err)
		}
	}
}

func TestSeed_B12_keys_and_folders_do_not_share_a_socket(t *testing.T) {
	long := "/" + strings.Repeat("d", 150)
	seen := map[string]string{}
	for _, c := range [][2]string{
		{"/a", "x/y"}, {"/a", "x_y"}, {"/a", "x y"}, {"/a", "X_y"}, {"/b", "x_y"},
		{long, "x/y"}, {long, "x_y"}, {long + "e", "x_y"}, {"/a", strings.Repeat("k", 300)}, {"/a", strings.Repeat("k", 301)},
	} {
		got, err := pathWithin(c[0], c[1], 501, darwinPathBytes)
		if err != nil {
			t.Fatal(err)
		}
		if other, taken := seen[got]; taken {
			t.Fatalf("%q and %q share %q", other, c, got)
		}
		seen[got] = c[0] + " " + c[1]
	}
}

func TestSeed_B12_every_path_fits_and_stays_in_its_folder(t *testing.T) {
	nobody := uint32(4294967294)
	uid := int(nobody) // the longest there is, where an int holds it
	rapid.Check(t, func(t *rapid.T) {
		dir := "/" + rapid.StringMatching(`[a-zé/.]{0,120}`).Draw(t, "dir")
		key := rapid.StringN(1, 80, 200).Draw(t, "key")
		limit := rapid.SampledFrom([]int{linuxPathBytes, darwinPathBytes}).Draw(t, "limit")
		got, err := pathWithin(dir, key, uid, limit)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) > limit || strings.ContainsRune(got, 0) {
			t.Fatalf("%q has %d bytes, limit %d", got, len(got), limit)
		}
		if parent := filepath.Dir(got); parent != filepath.Clean(dir) && parent != FallbackRoot(uid) {
			t.Fatalf("%q is in neither folder", got)
		}
		if again, _ := pathWithin(dir, key, uid, limit); again != got {
			t.Fatalf("%q the second time, %q the first", again, got)
		}
	})
}

func TestSeed_B12_refuses_what_names_no_folder_or_no_key(t *testing.T) {
	for _, c := range [][2]string{{"", "k"}, {"run", "k"}, {"@run", "k"}, {"/run\x00", "k"}, {"/run", ""}} {
		if got, err := pathWithin(c[0], c[1], 501, linuxPathBytes); err == nil {
			t.Errorf("Path(%q, %q) = %q, want an error", c[0], c[1], got)
		}
	}
	long := "/" + strings.Repeat("d", MaxPathBytes())
	if err := validPath(long); !errors.Is(err, ErrPathTooLong) {
		t.Errorf("a path one byte too long: %v", err)
	}
	if err := validPath(long[:MaxPathBytes()]); err != nil {
		t.Errorf("a path of exactly the limit: %v", err)
	}
}
