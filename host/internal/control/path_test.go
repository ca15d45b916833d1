package control

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestPathFitsOrMovesAsAWhole(t *testing.T) {
	const limit = 107
	short := placeWithin("/home/u/.sox/run", "/home/u/.sox/plugins", 1000, limit)
	if want := "/home/u/.sox/run/" + digestOf("/home/u/.sox/plugins") + "-42.sock"; short.path(42, 1) != want {
		t.Errorf("short home: %s, want %s", short.path(42, 1), want)
	}
	if got := short.path(42, 2); !strings.HasSuffix(got, "-42-2.sock") {
		t.Errorf("second host of one process id: %s", got)
	}

	deep := filepath.Join("/home", strings.Repeat("d", 200), ".sox/run")
	long := placeWithin(deep, "/p", 1000, limit)
	if long.dir != "/tmp/sox-1000" || len(long.path(1<<31-1, maxSameName)) > limit {
		t.Errorf("long home: %s", long.path(1<<31-1, maxSameName))
	}
	if other := placeWithin(deep+"x", "/p", 1000, limit); other.digest == long.digest {
		t.Error("two homes share their names in the fallback folder")
	}
	// Whether a path fits must not depend on the digits of a process id, or discovery would look in one place
	// for hosts that are in two.
	for n := range 60 {
		dir := "/" + strings.Repeat("d", 40+n)
		if p := placeWithin(dir, "/p", 1000, limit); p.dir == dir && len(p.path(1<<31-1, maxSameName)) > limit {
			t.Errorf("folder of %d bytes: a long process id does not fit", len(dir))
		}
	}
}

func TestSocketNamesAreOursAlone(t *testing.T) {
	p := placeWithin("/r", "/p", 1000, 107)
	for _, own := range []string{p.path(1, 1), p.path(1<<31-1, maxSameName)} {
		if digest, _, ok := splitName(filepath.Base(own)); !ok || digest != p.digest {
			t.Errorf("%s is not recognised", own)
		}
	}
	for _, foreign := range []string{"proxy-notes-0123456789abcdef.sock", "p-0123456789abcdef.sock", "0123456789ab.sock", "x0123456789ab-1.sock", "0123456789ab-1.sock.bak", ".0123456789ab-1.sock",
		"0123456789ab-.sock", "0123456789ab-1", "0123456789ab-1-.sock", "0123456789ab-1-100.sock", "0123456789ab-1-1-1.sock", "0123456789ab-12345678901.sock", "0123456789aB-1.sock", "0123456789ab-x.sock"} {
		if _, _, ok := splitName(foreign); ok {
			t.Errorf("%s is taken for a control socket", foreign)
		}
	}
}
