package main

import (
	"runtime"
	"strings"
)

// newModule is the text of a new plugin. It is the smallest thing that builds, has a test worth keeping, and can be
// installed. dev is the command that builds it at every save. Nothing in the Go files is aligned by the length of a
// name, so that they are as gofmt leaves them; formatting them here would put a parser of Go into every start of the
// host.
func newModule(name, module, dev string, sdk sdkSource) []moduleFile {
	replace := ""
	if sdk.replace != "" {
		replace = "\nreplace " + soxModule + " => " + modQuote(sdk.replace) + "\n"
	}
	fill := strings.NewReplacer(
		"NAME", name,
		"MODULE", modQuote(module),
		"DEV", dev,
		"GOVERSION", goVersion(),
		"VERSION", firstVersion,
		"SOX", soxModule,
		"SDK", sdk.version,
		"REPLACE", replace,
		"~", "`",
	)
	files := []moduleFile{{"go.mod", newGoMod}, {"main.go", newMain}, {"main_test.go", newTest}, {"README.md", newReadme}, {".gitignore", newIgnore}}
	for i, f := range files {
		files[i].text = fill.Replace(f.text)
	}
	return files
}

// modQuote writes a path as go.mod wants it.
func modQuote(path string) string {
	if strings.ContainsAny(path, " \t\"'`()[]{},") {
		return "\"" + strings.ReplaceAll(strings.ReplaceAll(path, `\`, `\\`), `"`, `\"`) + "\""
	}
	return path
}

// goVersion is the release of Go that this program was built with, without its patch: the sdk needs no newer one.
func goVersion() string {
	parts := strings.SplitN(strings.TrimPrefix(runtime.Version(), "go"), ".", 3)
	if len(parts) < 2 || strings.Trim(parts[0]+parts[1], "0123456789") != "" {
		return "1.26.0" // a development version
	}
	return parts[0] + "." + parts[1] + ".0"
}

const newGoMod = `module MODULE

go GOVERSION

require SOX SDK
REPLACE`

const newMain = `// NAME is a sox-host plugin.
package main

import (
	"context"

	"SOX/sdk"
)

// version has to be the one in the name of the plugin's file. It is set at build time: -ldflags "-X main.version=X.Y.Z".
var version = "VERSION"

type greetIn struct {
	Name string ~json:"name" jsonschema:"whom to greet"~
}

type greetOut struct {
	Text string ~json:"text"~
}

func greet(_ context.Context, in greetIn) (greetOut, error) {
	return greetOut{"Hello, " + in.Name + "!"}, nil
}

func newPlugin() *sdk.Plugin {
	p := sdk.New("NAME", version)
	// For models, which see it as NAME__greet.
	sdk.Tool(p, "greet", "Greet somebody.", greet, sdk.ReadOnly())
	// For any JSON-RPC program.
	sdk.Method(p, "NAME.greet", greet, sdk.ReadOnly())
	return p
}

func main() { sdk.Main(newPlugin()) }
`

const newTest = `package main

import (
	"testing"

	"SOX/sdk/sdktest"
)

// What every host relies on, whatever the plugin does.
func TestConformance(t *testing.T) { sdktest.Conformance(t, newPlugin()) }

func TestGreet(t *testing.T) {
	session := sdktest.Start(t, newPlugin()).Open(sdktest.MCP("2025-11-25"))
	result := session.Tool("greet", map[string]any{"name": "Ann"})
	if got, want := string(result.Structured), ~{"text":"Hello, Ann!"}~; result.IsError || got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
`

const newReadme = `# NAME

A [sox-host](https://SOX) plugin. ~main.go~ has the tool ~greet~ for MCP clients, and the method ~NAME.greet~ for other JSON-RPC programs.

While you work on it, let every save replace the running one, under your client and without a lost call:

    DEV

Test it:

    go test ./...

Install a version. The version that the program reports and the one it is installed as are the same:

    go build -ldflags "-X main.version=VERSION" -o NAME .
    sox-host install NAME --version VERSION --start

Call it:

    sox-host call NAME greet '{"name":"Ann"}'
    sox-host call NAME.greet '{"name":"Ann"}'

For the next version build with another ~main.version~, install that without ~--start~, look at what it changes and go to it:

    sox-host diff NAME
    sox-host upgrade NAME

~sox-host rollback NAME~ goes back.

Started by hand the program is an ordinary MCP server on its stdin and stdout.
`

const newIgnore = `# What go build -o NAME makes.
/NAME
`
