package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/sox-host/sox-host/host"
)

const (
	// soxModule is the module that a new plugin imports its sdk from.
	soxModule = "github.com/sox-host/sox-host"
	// firstVersion of a new plugin: nothing is promised to anyone yet.
	firstVersion = "0.1.0"
)

// newOptions are the flags of new.
type newOptions struct {
	dir, module, replace string
	noTidy               bool
}

func newCommand() *command {
	var o newOptions
	return &command{
		name:    "new",
		args:    "NAME",
		minArgs: 1,
		maxArgs: 1,
		short:   "Write the Go module of a new plugin, with a test",
		help: `Writes go.mod, main.go, main_test.go, README.md and .gitignore into a new folder, and lets
the go command find the modules it needs, which writes go.sum. What is there is never
overwritten. The result builds, passes its test and can be installed as it is; the README
has the steps.

The sdk comes from the release that this sox-host is. Inside a checkout of sox-host,
or with --replace, it comes from there instead.

Examples:
  sox-host new weather
  sox-host new weather --dir ~/src/weather --module example.org/weather
  sox-host new weather --replace ~/src/sox-host
`,
		exits: []host.Exit{host.ExitDone, host.ExitFailed, host.ExitUsage, host.ExitNotFound, host.ExitRefused},
		flags: func(fs *pflag.FlagSet) {
			fs.StringVar(&o.dir, "dir", "", "`folder` to write to, new or empty (default: NAME)")
			fs.StringVar(&o.module, "module", "", "`path` of the Go module (default: example/NAME, which clashes with no package of Go)")
			fs.StringVar(&o.replace, "replace", "", "`folder` of a checkout of sox-host to take the sdk from")
			fs.BoolVar(&o.noTidy, "no-tidy", false, "only write the files; go mod tidy is left to you")
		},
		run: func(ctx context.Context, c *call) error { return runNew(ctx, c, o) },
	}
}

func checkPluginName(name string) error {
	if !host.ValidName(name) {
		return usagef("%q cannot name a plugin: a name starts with a letter a-z and has at most 32 characters a-z, 0-9 and -", name)
	}
	return nil
}

// keptByWindows says whether a name is that of a device on Windows. The go command takes none of them on any system.
func keptByWindows(name string) bool {
	port := strings.TrimPrefix(strings.TrimPrefix(name, "com"), "lpt")
	return slices.Contains([]string{"con", "prn", "aux", "nul"}, name) || port != name && len(port) == 1 && port >= "1" && port <= "9"
}

// newResult is the result with --json.
type newResult struct {
	Plugin string   `json:"plugin"`
	Dir    string   `json:"dir"`
	Files  []string `json:"files"`
	SDK    string   `json:"sdk"` // version, or folder, that the sdk comes from
	Next   []string `json:"next"`
}

func runNew(ctx context.Context, c *call, o newOptions) error {
	name := c.args[0]
	if err := checkPluginName(name); err != nil {
		return err
	}
	if o.module == "" && keptByWindows(name) {
		return usagef("Go takes no module whose path has %q in it, which Windows keeps for a device: choose another name, or pass --module example/%s-plugin", name, name)
	}
	if o.module == "main" {
		return usagef("Go builds no tests of a module main: leave --module out, or pass --module example/%s", name)
	}
	module := cmp.Or(o.module, "example/"+name) // free for anybody's use, says Go: a module fmt could not import fmt
	dir, err := filepath.Abs(cmp.Or(o.dir, name))
	if err != nil {
		return err
	}
	dev := "sox-host dev ."
	if filepath.Base(dir) != name { // from which dev would take the name
		dev += " --name " + name
	}
	source, err := findSDK(name, dir, o.replace)
	if err != nil {
		return err
	}
	result := newResult{Plugin: name, Dir: dir, SDK: cmp.Or(source.replace, source.version)}
	if result.Files, err = writeModule(dir, newModule(name, module, dev, source)); err != nil {
		return err
	}
	if !o.noTidy {
		if err := tidy(ctx, c, dir); err != nil {
			return fmt.Errorf("%w\nThe files are in %s. When that is mended, run the same sox-host new again, or go mod tidy there", err, dir)
		}
		if _, err := os.Stat(filepath.Join(dir, "go.sum")); err == nil {
			result.Files = append(result.Files, "go.sum")
		}
	}
	if shown := cmp.Or(o.dir, name); shown != "." {
		result.Next = append(result.Next, "cd "+shellQuote(shown))
	}
	if o.noTidy {
		result.Next = append(result.Next, "go mod tidy")
	}
	result.Next = append(result.Next, "go test ./...", dev+c.sameFolders())
	if c.json {
		return c.printJSON(result)
	}
	for _, file := range result.Files {
		c.printf("wrote %s\n", oneLine(filepath.Join(cmp.Or(o.dir, name), file)))
	}
	c.printf("\n%s is a plugin with one tool. Next:\n\n", name)
	for _, step := range result.Next {
		c.printf("  %s\n", oneLine(step))
	}
	c.printf("\ndev builds it at every save and swaps it under your client. README.md has the other steps.\n")
	return nil
}

// sdkSource is where the sdk comes from.
type sdkSource struct {
	version string // of the module
	replace string // folder, as go.mod will name it; "" means none
}

// findSDK looks for a checkout around dir, unless one is named. Without any it is the release that this program is.
func findSDK(name, dir, named string) (sdkSource, error) {
	if named != "" {
		folder, err := filepath.Abs(named)
		if err != nil {
			return sdkSource{}, err
		}
		if !isCheckout(folder) {
			return sdkSource{}, &exitError{host.ExitNotFound, fmt.Errorf("--replace %s: there is no checkout of %s", named, soxModule)}
		}
		return sdkSource{"v0.0.0", folder}, nil
	}
	for folder := filepath.Dir(dir); ; folder = filepath.Dir(folder) {
		if isCheckout(folder) {
			relative, err := filepath.Rel(dir, folder)
			return sdkSource{"v0.0.0", filepath.ToSlash(relative)}, err
		}
		if folder == filepath.Dir(folder) {
			break
		}
	}
	if built := readVersion(); built.fetchable() {
		return sdkSource{version: "v" + strings.TrimPrefix(built.Version, "v")}, nil
	}
	return sdkSource{}, &exitError{host.ExitRefused, fmt.Errorf("this sox-host (%s) is no release, so there is no sdk to fetch, and nothing was written; with a checkout of sox-host it is: sox-host new %s --replace /path/to/sox-host", readVersion().Version, name)}
}

// releaseVersion is a version of the module that the go command can fetch. One that was built from changed files has
// build metadata, and cannot be fetched.
func releaseVersion() *regexp.Regexp {
	return regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)
}

// commitVersion is what the go command calls a commit without a tag.
func commitVersion() *regexp.Regexp {
	return regexp.MustCompile(`[.-]\d{14}-[0-9a-f]{12}$`)
}

// fetchable says whether the go command can be expected to find this version. A commit that was built in a checkout
// may be known to nobody else.
func (v versionInfo) fetchable() bool {
	return releaseVersion().MatchString(strings.TrimPrefix(v.Version, "v")) &&
		(v.Revision == "" || !commitVersion().MatchString(v.Version))
}

func moduleLine() *regexp.Regexp {
	return regexp.MustCompile(`(?m)^module\s+"?` + regexp.QuoteMeta(soxModule) + `"?\s*$`)
}

func isCheckout(folder string) bool {
	raw, err := os.ReadFile(filepath.Join(folder, "go.mod"))
	return err == nil && moduleLine().Match(raw)
}

// moduleFile is one file to write.
type moduleFile struct{ name, text string }

// writeModule writes files into a folder that is new, empty, or holds only files of an attempt before that nobody has
// changed, and returns their names.
func writeModule(dir string, files []moduleFile) ([]string, error) {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	}
	for _, entry := range entries {
		if !isLeft(dir, entry.Name(), files) {
			return nil, &exitError{host.ExitRefused, fmt.Errorf("%s is not empty (it has %s): nothing is overwritten, choose another --dir", dir, entry.Name())}
		}
	}
	for _, entry := range entries {
		if err := os.Remove(filepath.Join(dir, entry.Name())); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	var names []string
	for _, file := range files {
		f, err := os.OpenFile(filepath.Join(dir, file.name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return nil, err
		}
		_, err = f.WriteString(file.text)
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		names = append(names, file.name)
	}
	return names, nil
}

// isLeft says whether an entry is one of files, as an attempt before wrote it. That may have named another sdk.
func isLeft(dir, entry string, files []moduleFile) bool {
	i := slices.IndexFunc(files, func(f moduleFile) bool { return f.name == entry })
	if i < 0 {
		return false
	}
	info, err := os.Lstat(filepath.Join(dir, entry))
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	raw, err := os.ReadFile(filepath.Join(dir, entry))
	return err == nil && sdkLines().ReplaceAllString(string(raw), "") == sdkLines().ReplaceAllString(files[i].text, "")
}

// sdkLines are the lines of a new go.mod that say where the sdk comes from.
func sdkLines() *regexp.Regexp {
	return regexp.MustCompile(`(?m)^(require|replace) ` + regexp.QuoteMeta(soxModule) + ` .*\n|^\n`)
}

// tidy lets the go command complete go.mod and write go.sum. It fetches modules that are not in its cache.
func tidy(ctx context.Context, c *call, dir string) error {
	cmd := exec.CommandContext(ctx, "go", "mod", "tidy")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	switch err := cmd.Run(); {
	case errors.Is(err, exec.ErrNotFound):
		return errors.New("go mod tidy: there is no go command on PATH: install Go")
	case err != nil:
		fmt.Fprintf(c.stderr, "%s\n", strings.TrimSpace(output.String()))
		return fmt.Errorf("go mod tidy: %w", err)
	}
	return nil
}
