package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/sox-host/sox-host/host"
)

// version is set by release builds: -ldflags "-X main.version=1.2.3".
var version string

func versionCommand() *command {
	return &command{
		name:  "version",
		short: "Print the version of sox-host",
		help: `Examples:
  sox-host version
  sox-host version --json
`,
		exits: []host.Exit{host.ExitDone, host.ExitUsage},
		run: func(_ context.Context, c *call) error {
			v := readVersion()
			if c.json {
				return c.printJSON(v)
			}
			c.printf("sox-host %s (%s, %s)\n", v.Version, v.Go, v.System)
			return nil
		},
	}
}

type versionInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	System   string `json:"system"`
}

func readVersion() versionInfo {
	v := versionInfo{Version: version, Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v.Revision = s.Value
			}
		}
		if v.Version == "" && info.Main.Version != "(devel)" {
			v.Version = info.Main.Version
		}
	}
	if v.Version == "" {
		v.Version = "devel"
		if len(v.Revision) > 12 {
			v.Version = fmt.Sprintf("devel-%s", v.Revision[:12])
		}
	}
	return v
}
