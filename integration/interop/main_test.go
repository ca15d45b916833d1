//go:build interop && !windows

package interop

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/sox-host/sox-host/integration/internal/rig"
)

var update = flag.Bool("update", false, "write RESULTS.md")

func TestMain(m *testing.M) {
	if _, err := os.Stat(modules()); err != nil {
		fmt.Fprintln(os.Stderr, "the npm packages are not installed: run make interop")
		os.Exit(1)
	}
	// Each test runs several Nodes, which take all of a core while they start; -parallel says otherwise.
	if err := flag.Set("test.parallel", "3"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	rig.Main(m)
}
