package host

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sox-host/sox-host/host/internal/store"
)

// ImportOptions says which configurations of clients to turn into manifests.
type ImportOptions struct {
	Home       string // absolute
	PluginsDir string // absolute; the default folder is created
	Files      []string
	Client     ImportClient // whose files they are; "" goes by their names
	DryRun     bool         // write nothing
	Replace    bool         // overwrite files of an earlier import
	Serve      []string     // the command line by which clients start a host, for the configuration that replaces theirs
}

// The results of an entry.
const (
	ImportDone      = "imported"
	ImportPlanned   = "would import"
	ImportUnchanged = "unchanged"
	ImportSkipped   = "skipped" // nothing to import, by its nature
	ImportRefused   = "refused" // something is in the way
)

// ImportReport is the result of Import.
type ImportReport struct {
	Exit  Exit           `json:"exit"`
	Files []ImportedFile `json:"files"`
}

// ImportedFile is one file of a client.
type ImportedFile struct {
	Path   string       `json:"path"`
	Client ImportClient `json:"client,omitempty"`
	// Guessed says that neither the file's name nor its folder tells whose it is.
	Guessed bool          `json:"guessed,omitempty"`
	Error   string        `json:"error,omitempty"`
	Entries []ImportEntry `json:"entries"`
	// Config is what the client needs instead of the imported entries; what was not imported stays in it.
	Config json.RawMessage `json:"config,omitempty"`
}

// ImportEntry is one server of a client's file. Values of variables are never part of it.
type ImportEntry struct {
	Server   string          `json:"server"`          // the client's name for it
	Scope    string          `json:"scope,omitempty"` // project
	Plugin   string          `json:"plugin,omitempty"`
	Version  string          `json:"version,omitempty"`
	Result   string          `json:"result"`
	Reason   string          `json:"reason,omitempty"` // for skipped and refused
	Hints    []string        `json:"hints,omitempty"`
	Files    []string        `json:"files,omitempty"`    // written, or to be written
	Manifest json.RawMessage `json:"manifest,omitempty"` // its content
	Secrets  []string        `json:"secrets,omitempty"`  // variables in NAME.json that look like credentials, some made of headers
	Plain    []string        `json:"plain,omitempty"`    // other variables in NAME.json
	Passed   []string        `json:"passed,omitempty"`   // variables that the client hands over at every start

	server   clientServer
	settings []byte
	passed   map[string]string // as the client writes them
}

const reasonItself = "it is sox-host itself"

// manifestFile is what a manifest looks like in a file.
type manifestFile struct {
	Command   string            `json:"command,omitempty"`
	Args      []string          `json:"args,omitempty"`
	URL       string            `json:"url,omitempty"`
	Transport string            `json:"transport,omitempty"`
	Headers   map[string]string `json:"headers,omitempty"`
	EnvAllow  []string          `json:"env_allow,omitempty"`
	Cwd       string            `json:"cwd,omitempty"`
}

// Import reads the configurations of clients and writes a manifest NAME_vX.Y.Z.json for each server that is a command
// or a url.
// Values of variables go into NAME.json, mode 0600; those that the client fills in at each start are passed on by
// name. Nothing is started. An existing file with other content is refused unless Replace is set. Failures are in the
// report; an error means that nothing was begun.
func Import(ctx context.Context, o ImportOptions) (ImportReport, error) {
	report := ImportReport{Files: []ImportedFile{}}
	home, err := store.OpenHome(o.Home)
	if err != nil {
		return report, err
	}
	defer removeUnused(home, o.PluginsDir)()
	if !o.DryRun && o.PluginsDir == home.PluginsDir() {
		if _, err := home.EnsurePlugins(); err != nil {
			return report, err
		}
	}
	listing, err := store.Scan(o.PluginsDir)
	if errors.Is(err, fs.ErrNotExist) && o.DryRun {
		err = nil
	}
	if err != nil {
		return report, err
	}
	states, err := home.State(o.PluginsDir)
	if err != nil {
		return report, err
	}
	im := importer{ImportOptions: o, states: states, taken: make(map[string]manifestKey)}
	for _, f := range listing.Files {
		if f.Kind == store.Binary {
			im.taken[f.Name] = manifestKey{}
		}
	}
	for _, path := range o.Files {
		report.Files = append(report.Files, im.file(ctx, path))
	}
	report.Exit = im.exit()
	return report, nil
}

// importer is one Import at work.
type importer struct {
	ImportOptions
	states *store.State
	taken  map[string]manifestKey // by plugin name: what it is in this import; zero = somebody else's

	done, failed int
	first        Exit // of the failures
}

// manifestKey tells equal servers of two scopes from different ones of one name.
type manifestKey struct{ manifest, settings string }

func (im *importer) exit() Exit {
	switch {
	case im.failed > 0 && im.done > 0:
		return ExitPartial
	case im.failed > 0:
		return im.first
	}
	return ExitDone
}

func (im *importer) fail(exit Exit) {
	if im.failed == 0 {
		im.first = exit
	}
	im.failed++
}

func (im *importer) file(ctx context.Context, path string) ImportedFile {
	out := ImportedFile{Path: path, Entries: []ImportEntry{}}
	f, err := readClientFile(path, im.Client)
	if err != nil {
		out.Error = err.Error()
		im.fail(exitOf(err))
		return out
	}
	out.Client, out.Guessed = f.client, f.guessed
	for _, server := range f.servers {
		e := im.plan(f.client, server)
		if e.Result == "" {
			if err := im.write(ctx, &e); err != nil {
				e.Result, e.Reason = ImportRefused, err.Error()
				im.fail(exitOf(err))
			} else {
				im.done++
			}
		}
		out.Entries = append(out.Entries, e)
	}
	out.Config = replacement(f, &out, im.Serve)
	return out
}

// plan decides what becomes of a server. An empty Result means that it is to be written.
func (im *importer) plan(client ImportClient, s clientServer) ImportEntry {
	s.literal = client == ClientClaudeDesktop
	e := ImportEntry{Server: s.name, Scope: s.scope, server: s, passed: make(map[string]string)}
	if e.Reason = notImportable(s); e.Reason != "" {
		e.Result = ImportSkipped
		return e
	}
	values := make(map[string]string)
	var m manifestFile
	if s.URL != "" {
		m = e.remote(s, values)
	} else {
		m = e.command(s, values)
	}
	e.Manifest = asJSON(m)
	if len(values) > 0 {
		e.settings = asJSON(map[string]any{"env": values})
	}
	im.name(&e)
	for i := range e.Hints {
		e.Hints[i] = strings.ReplaceAll(e.Hints[i], "NAME.json", e.Plugin+".json")
	}
	return e
}

// command is the manifest of a server that runs here. Variables that the client gives it go into values, or into Passed.
func (e *ImportEntry) command(s clientServer, values map[string]string) manifestFile {
	m := manifestFile{Command: s.settle(s.Command), Cwd: s.settle(s.Cwd)}
	for _, arg := range s.Args {
		m.Args = append(m.Args, s.settle(arg))
	}
	m.placeIn(s.base)
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		if value := s.Env[name]; value != nil {
			e.variable(s, &m, values, name, *value)
		}
	}
	if s.EnvFile != "" {
		e.Hints = append(e.Hints, fmt.Sprintf("its envFile %s is not read: put what the server needs into \"env\" of NAME.json", s.EnvFile))
	}
	var pinned bool
	if e.Version, pinned = pinnedVersion(m); !pinned && fetches(m) {
		e.Hints = append(e.Hints, "its version is not pinned, so it is 0.0.0 here: name one, as in npx PACKAGE@1.2.3 or uvx PACKAGE==1.2.3, to have upgrades in your hands")
	}
	if _, err := exec.LookPath(m.Command); err != nil {
		e.Hints = append(e.Hints, fmt.Sprintf("the command %s is not found here: install it", m.Command))
	}
	return m
}

// variable gives the plugin a variable with a text of the client's file: one that the client fills in is passed on by
// name, any other is a value for the user's eyes alone.
func (e *ImportEntry) variable(s clientServer, m *manifestFile, values map[string]string, name, text string) {
	if settled := s.settle(text); s.literal || !variable().MatchString(settled) {
		values[name] = settled
		if s.URL != "" || looksSecret(name, settled) { // parts of an address and headers are made for keys
			e.Secrets = append(e.Secrets, name)
		} else {
			e.Plain = append(e.Plain, name)
		}
		return
	}
	m.EnvAllow = append(m.EnvAllow, name)
	e.passed[name] = text
	e.Passed = append(e.Passed, name)
}

func asJSON(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // texts and lists of texts always marshal
	}
	return b.Bytes()
}

// notImportable says why a server is passed over, or "".
func notImportable(s clientServer) string {
	base := strings.TrimSuffix(filepath.Base(filepath.ToSlash(s.Command)), ".exe")
	switch {
	case s.fault != nil:
		return "not understood: " + s.fault.Error()
	case s.Disabled:
		return "disabled in the client"
	case s.URL != "":
		return notReachable(s)
	case s.Command == "" && s.Type != "" && s.Type != "stdio":
		return fmt.Sprintf("of type %q, which has no command to run: leave it with the client", s.Type)
	case s.Command == "":
		return "it names no command"
	case base == "sox-host":
		return reasonItself
	}
	for _, text := range append([]string{s.Command, s.Cwd}, s.Args...) {
		if settled := s.settle(text); !s.literal && variable().MatchString(settled) {
			return fmt.Sprintf("%q has a variable that the client fills in; a manifest does not: write its value, or pass it as a variable in \"env\"", variable().FindString(settled))
		}
	}
	return ""
}

// placeIn makes paths that are relative to a project work from anywhere.
func (m *manifestFile) placeIn(base string) {
	if base == "" {
		return
	}
	if m.Cwd != "" && !filepath.IsAbs(m.Cwd) {
		m.Cwd = filepath.Join(base, m.Cwd)
	}
	start := m.Cwd
	if start == "" {
		start = base
	}
	if strings.ContainsRune(filepath.ToSlash(m.Command), '/') && !filepath.IsAbs(m.Command) {
		m.Command = filepath.Join(start, m.Command)
	}
	for _, arg := range m.Args {
		if m.Cwd == "" && arg != "" && arg[0] != '-' && !filepath.IsAbs(arg) {
			if _, err := os.Stat(filepath.Join(base, arg)); err == nil {
				m.Cwd = base
			}
		}
	}
}

// runners fetch a package and run it; their arguments may name its version.
var runners = []string{"npx", "bunx", "pnpx", "pnpm", "yarn", "bun", "deno", "npm", "uvx", "uv", "pipx", "docker", "podman", "cmd", "cmd.exe", "npx.cmd", "go"}

// packageVersion is the end of a package with its version: name@1.2.3, name==1.2.3, image:1.2.3.
func packageVersion() *regexp.Regexp {
	return regexp.MustCompile(`^[^\s=-][^\s=]*?(?:@|==|:)v?([0-9]+\.[0-9]+\.[0-9]+(?:[-+][0-9A-Za-z.+-]+)?)$`)
}

// fetches says whether a command fetches a package, in a version that it may be told.
func fetches(m manifestFile) bool {
	return slices.Contains(runners, filepath.Base(filepath.ToSlash(m.Command)))
}

// pinnedVersion finds the version that the arguments ask for, else 0.0.0.
func pinnedVersion(m manifestFile) (version string, pinned bool) {
	if fetches(m) {
		for _, arg := range m.Args {
			if found := packageVersion().FindStringSubmatch(arg); found != nil {
				if v, err := store.ParseVersion(found[1]); err == nil {
					return v.String(), true
				}
			}
		}
	}
	return "0.0.0", false
}

func notInName() *regexp.Regexp { return regexp.MustCompile(`[^a-z0-9]+`) }

// pluginNameOf makes a plugin's name of any text.
func pluginNameOf(server string) string {
	name := strings.Trim(notInName().ReplaceAllString(strings.ToLower(server), "-"), "-")
	if name == "" || name[0] < 'a' || name[0] > 'z' {
		name = strings.Trim("mcp-"+name, "-")
	}
	return strings.TrimRight(name[:min(len(name), 32)], "-")
}

// name gives an entry a name that no other server of this import and no program of the folder has. The same server in
// two scopes is imported once.
func (im *importer) name(e *ImportEntry) {
	key := manifestKey{e.Version + string(e.Manifest), string(e.settings)}
	base := pluginNameOf(e.Server)
	for n := 1; ; n++ {
		e.Plugin = base
		if n > 1 {
			suffix := "-" + strconv.Itoa(n)
			e.Plugin = strings.TrimRight(base[:min(len(base), 32-len(suffix))], "-") + suffix
		}
		other, taken := im.taken[e.Plugin]
		if !taken {
			im.taken[e.Plugin] = key
			return
		}
		if other == key {
			e.Result, e.Reason = ImportSkipped, "the same as another entry, which is "+e.Plugin
			return
		}
	}
}

// write writes settings and manifest, in this order: a running host starts what it sees.
func (im *importer) write(ctx context.Context, e *ImportEntry) error {
	manifest := filepath.Join(im.PluginsDir, e.Plugin+"_v"+e.Version+".json")
	type file struct {
		path string
		data []byte
	}
	files := []file{{manifest, e.Manifest}}
	if e.settings != nil {
		files = []file{{filepath.Join(im.PluginsDir, e.Plugin+".json"), e.settings}, files[0]}
	}
	same := 0
	for _, f := range files {
		e.Files = append(e.Files, f.path)
		present, err := os.ReadFile(f.path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		case bytes.Equal(present, f.data):
			same++
		case !im.Replace:
			return fmt.Errorf("%w: %s is there with other content: pass --replace to overwrite it", ErrRefused, f.path)
		}
	}
	switch {
	case same == len(files):
		e.Result = ImportUnchanged
		return nil
	case im.DryRun:
		e.Result = ImportPlanned
		return nil
	}
	unlock, err := im.states.Lock(ctx, e.Plugin)
	if err != nil {
		return err
	}
	defer unlock()
	for _, f := range files {
		if err := writePrivate(f.path, f.data); err != nil {
			return err
		}
	}
	e.Result = ImportDone
	return store.SyncFolder(im.PluginsDir)
}

// writePrivate writes a file that only this user can read; it appears whole, by rename.
func writePrivate(path string, data []byte) error {
	temporary := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"."+rand.Text())
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer os.Remove(temporary) // gone already after the rename
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	// It is whole: it must not count as settling.
	settled := time.Now().Add(-time.Minute)
	if err := os.Chtimes(temporary, settled, settled); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}
