//go:build interop

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
	rig.Main(m)
}
