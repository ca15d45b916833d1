package sdk_test

import (
	"go/doc/comment"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// surroundings are what the code of a package comment is part of.
const surroundings = `package main

import (
	"context"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sox-host/sox-host/examples/clients/go"
	"github.com/sox-host/sox-host/sdk"
	"github.com/sox-host/sox-host/sdk/inputschema"
	"github.com/sox-host/sox-host/sdk/mcpserver"
	"github.com/sox-host/sox-host/sdk/sdktest"
)

var (
	_ testing.TB
	_ mcp.Server
	_ client.Client
	_ = inputschema.New
	_ = mcpserver.Serve
	_ = sdktest.Start

	p         *sdk.Plugin
	newPlugin func() *sdk.Plugin
)

type none struct{}

func paint(context.Context, none) (none, error) { return none{}, nil }

func search(context.Context, *mcp.CallToolRequest, none) (*mcp.CallToolResult, none, error) {
	return nil, none{}, nil
}

func main() {}
`

// What a package says in its first comment is copied into programs, and compiles there.
func TestCodeOfTheDocumentationCompiles(t *testing.T) {
	for file, around := range map[string][2]string{
		"doc.go":                           {"", ""}, // a whole program
		"sdktest/host.go":                  {surroundings, ""},
		"inputschema/inputschema.go":       {surroundings + "func _() {\n", "}\n"},
		"mcpserver/mcpserver.go":           {surroundings + "func _() {\n", "}\n"},
		"../examples/clients/go/client.go": {surroundings + "func _(ctx context.Context) error {\n", "_ = result\nreturn err\n}\n"},
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			parsed, err := parser.ParseFile(token.NewFileSet(), filepath.FromSlash(file), nil, parser.ParseComments|parser.PackageClauseOnly)
			if err != nil {
				t.Fatal(err)
			}
			blocks := 0
			for _, block := range new(comment.Parser).Parse(parsed.Doc.Text()).Content {
				code, ok := block.(*comment.Code)
				if !ok {
					continue
				}
				blocks++
				program := filepath.Join(t.TempDir(), "main.go")
				if err := os.WriteFile(program, []byte(around[0]+code.Text+around[1]), 0o600); err != nil {
					t.Fatal(err)
				}
				if out, err := exec.CommandContext(t.Context(), "go", "vet", program).CombinedOutput(); err != nil {
					t.Errorf("%v\n%s\n%s", err, out, code.Text)
				}
			}
			if blocks != 1 {
				t.Errorf("%d blocks of code", blocks)
			}
		})
	}
}
