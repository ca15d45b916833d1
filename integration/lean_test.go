package integration

import (
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sox-host/sox-host/integration/internal/rig"
)

// A host is started with every session of a client, and waits for every package in it to be initialised. What it has
// no use for does not come back.
func TestHostIsLean(t *testing.T) {
	t.Parallel()
	for _, goos := range []string{"linux", "darwin"} {
		cmd := exec.Command("go", "list", "-deps", "./cmd/sox-host")
		cmd.Dir = rig.ModuleRoot()
		cmd.Env = append(cmd.Environ(), "GOOS="+goos)
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		packages := strings.Fields(string(out))
		if !slices.Contains(packages, "github.com/sox-host/sox-host/host") {
			t.Fatalf("on %s a host has no host: %q", goos, packages)
		}
		for _, p := range packages {
			if within(p, []string{"debug", "go", "compress", "archive", "net/http", "crypto/tls", "text/template", "encoding/base32"}) ||
				p == "github.com/go-json-experiment/json" {
				t.Errorf("on %s a host is linked with %s", goos, p)
			}
		}
	}
}

// Tables and patterns of our own are no work for a start: they are data, or made when they are first needed.
func TestStartInitialisesLittle(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	p.Setenv("GODEBUG", "inittrace=1")
	trace := p.MustCommand("version").Stderr
	seen := 0
	for line := range strings.Lines(trace) {
		// init net/netip @15 ms, 0.050 ms clock, 744 bytes, 18 allocs
		f := strings.Fields(line)
		if len(f) != 11 || f[0] != "init" {
			t.Fatalf("not a line of inittrace in %s: %q", runtime.Version(), line)
		}
		seen++
		allocs, err := strconv.Atoi(f[9])
		if err != nil {
			t.Fatalf("not a line of inittrace in %s: %q", runtime.Version(), line)
		}
		if own := strings.HasPrefix(f[1], module) || f[1] == "main"; own && allocs > 3 {
			t.Errorf("%s allocates %d times before main", f[1], allocs)
		}
	}
	if seen == 0 {
		t.Error("nothing was traced")
	}
}
