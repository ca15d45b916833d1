// Echo is the SDK plugin of the benchmark: one plain method, one tool that may be repeated and one that may not.
package main

import (
	"context"
	"encoding/json"

	"github.com/sox-host/sox-host/sdk"
)

type said struct {
	Text string `json:"text"`
}

func say(_ context.Context, in said) (string, error) { return in.Text, nil }

// raw says back whatever came.
func raw(_ context.Context, r *sdk.Request) (json.RawMessage, error) { return r.Params, nil }

// version is set by the linker for the build that an upgrade goes to.
var version = "1.0.0"

func main() {
	p := sdk.New("echo", version)
	sdk.Tool(p, "say", "Say the text back.", say, sdk.ReadOnly())
	sdk.Tool(p, "write", "Say the text back, as if it had been written.", say)
	sdk.Method(p, "echo.say", func(_ context.Context, in said) (said, error) { return in, nil }, sdk.ReadOnly())
	sdk.HandleFunc(p, "echo.raw", raw, sdk.ReadOnly())
	sdk.Main(p)
}
