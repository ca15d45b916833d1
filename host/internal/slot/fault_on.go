//go:build faultpoints

package slot

import (
	"os"
	"strings"
)

// faultVariable names one step of an upgrade and what happens there: "commit:kill" ends the host by SIGKILL
// when the commit begins, "commit.done:kill" when it has ended, "drain:hang" stops the operation for ever. The
// steps are those of report.go.
const faultVariable = "SOX_FAULTPOINT"

// faultPoint carries out what faultVariable asks for at this point. Only test builds have it.
func faultPoint(point string) {
	name, action, _ := strings.Cut(os.Getenv(faultVariable), ":")
	if name != point {
		return
	}
	switch action {
	case "kill":
		if p, err := os.FindProcess(os.Getpid()); err == nil {
			_ = p.Kill()
		}
		select {} // until the signal arrives
	case "hang":
		select {}
	}
}
