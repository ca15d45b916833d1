// Notes is a plugin over a folder of Markdown files: search, reading and backlinks for MCP clients, one resource per note, and the plain JSON-RPC
// method notes.get_backlinks for programs that speak no MCP.
//
// The vault is the folder in NOTES_VAULT, or the small one inside the binary. See README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/sox-host/sox-host/sdk"
	"github.com/sox-host/sox-host/sdk/mcpserver"
)

// Set at build time with -ldflags "-X main.version=…", so that one source makes the versions that the tests and the demo switch between.
var (
	version = "1.1.0"
	fault   = "" // why this build refuses to start; empty in every build that is meant to work
)

func main() {
	if fault != "" {
		fmt.Fprintf(os.Stderr, "notes %s cannot start: %s\n", version, fault)
		os.Exit(1)
	}
	vault := newVault()
	p := sdk.New("notes", version, sdk.WithTitle("Notes"))
	sdk.Method(p, "notes.get_backlinks", func(_ context.Context, in pathInput) (backlinksOutput, error) {
		out, err := vault.backlinks(in.Path)
		if missing := (*NoNoteError)(nil); errors.As(err, &missing) {
			return out, sdk.InvalidParams("%w", missing)
		}
		return out, err
	}, sdk.ReadOnly())
	mcpserver.Serve(p, newServer(vault))
	sdk.Main(p)
}
