// Echo is the smallest plugin: one MCP tool and one plain JSON-RPC method.
//
//	go build -o ~/.sox/plugins/echo_v1.0.0 ./examples/echo
//	sox-host upgrade echo
package main

import (
	"context"

	"github.com/sox-host/sox-host/sdk"
)

// version is set at build time: -ldflags "-X main.version=1.1.0".
var version = "1.0.0"

type said struct {
	Text string `json:"text" jsonschema:"the text to say back"`
}

func say(_ context.Context, in said) (said, error) { return in, nil }

func main() {
	p := sdk.New("echo", version, sdk.WithTitle("Echo"))
	sdk.Tool(p, "say", "Say the text back, unchanged.", say, sdk.ReadOnly())
	sdk.Method(p, "echo.say", say, sdk.ReadOnly())
	sdk.Main(p)
}
