//go:build faultpoints

package slot

import (
	"errors"
	"os"
	"os/exec"
	"testing"
)

// A fault point ends the process at the named step and at no other.
func TestFaultPoint(t *testing.T) {
	if os.Getenv("SLOT_FAULT_HELPER") != "" {
		faultPoint("gate")
		faultPoint("commit")
		os.Exit(3)
	}
	for variable, want := range map[string]int{"commit:kill": -1, "gate.done:kill": 3, "": 3} {
		c := exec.Command(os.Args[0], "-test.run=^TestFaultPoint$")
		c.Env = append(os.Environ(), "SLOT_FAULT_HELPER=1", faultVariable+"="+variable)
		var exit *exec.ExitError
		if err := c.Run(); !errors.As(err, &exit) || exit.ExitCode() != want {
			t.Errorf("%q: %v", variable, err)
		}
	}
}
