package host

import (
	"time"

	"github.com/sox-host/sox-host/host/internal/slot"
)

// The reports of operations, as the control socket carries them and the command line prints them.
type (
	UpgradeRequest = slot.UpgradeRequest
	Report         = slot.Report
	StepEvent      = slot.StepEvent
	Exit           = slot.Exit
	PluginStatus   = slot.Status
)

// DefaultSettle is how long an upgrade watches the new version before it reports success.
const DefaultSettle = slot.DefaultSettle

// Status is the state of one running host.
type Status struct {
	PID        int               `json:"pid"`
	Version    string            `json:"version"`
	Instance   string            `json:"instance"`
	Home       string            `json:"home"`
	PluginsDir string            `json:"plugins_dir"`
	Since      time.Time         `json:"since"`
	Client     string            `json:"client,omitempty"` // name and version the client gave
	Protocol   string            `json:"protocol,omitempty"`
	Plugins    []PluginStatus    `json:"plugins"`
	Problems   []string          `json:"problems,omitempty"` // files of the plugins folder that are no plugins, and why
	Counters   map[string]uint64 `json:"counters"`
}
