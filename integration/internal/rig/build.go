// Package rig starts the real sox-host as a black box and watches it: its lines, its exit code, and the processes it leaves. Tests drop builds into
// a plugins folder of their own, talk to the host as a client would, and run the command line as another process.
//
// What has to be true of every host is checked at the end of every test: each line on stdout is one JSON-RPC object, no id is answered twice or was
// never asked, and nothing that the host started is left once its stdin has closed.
package rig

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/sox-host/sox-host/integration/internal/stamp"
)

const module = "github.com/sox-host/sox-host"

// Programs builds the programs of this module on demand, each once. It is safe for concurrent use.
type Programs struct {
	dir  string
	race bool

	mu    sync.Mutex
	built map[string]func() (string, error)
}

// NewPrograms builds into dir. With race the host detects data races. The kit does not: a plugin gets no GORACE, and
// would take a second to end; the SDK's own tests look for its races.
func NewPrograms(dir string, race bool) *Programs {
	return &Programs{dir: dir, race: race, built: map[string]func() (string, error){}}
}

// build returns the path of a program, built at the first call.
func (p *Programs) build(name, pkg, ldflags string, race bool) (string, error) {
	p.mu.Lock()
	once := p.built[name]
	if once == nil {
		once = sync.OnceValues(func() (string, error) {
			path := filepath.Join(p.dir, name)
			args := []string{"build", "-o", path, "-ldflags", "-s -w " + ldflags} // nobody debugs them, and they are copied often
			if race {
				args = append(args, "-race")
			}
			cmd := exec.Command("go", append(args, pkg)...)
			cmd.Dir = moduleRoot()
			if out, err := cmd.CombinedOutput(); err != nil {
				return "", fmt.Errorf("build %s: %w\n%s", pkg, err, out)
			}
			return path, nil
		})
		p.built[name] = once
	}
	p.mu.Unlock()
	return once()
}

// Host returns sox-host.
func (p *Programs) Host() (string, error) {
	return p.build("sox-host", module+"/cmd/sox-host", "", p.race)
}

// Remote returns sox-remote. It lies beside sox-host, which looks for it there.
func (p *Programs) Remote() (string, error) {
	return p.build("sox-remote", module+"/cmd/sox-remote", "", p.race)
}

// Kit returns the kit without a stamp.
func (p *Programs) Kit() (string, error) {
	return p.build("kit", module+"/integration/kit", "", false)
}

// Program returns any other program of the module.
func (p *Programs) Program(pkg string) (string, error) {
	return p.build(strings.ReplaceAll(pkg, "/", "-"), module+"/"+pkg, "", false)
}

// NotesBroken is the version of notes that is made to fail at its start, and NotesFault what it says then.
const (
	NotesBroken = "1.2.0"
	NotesFault  = "the index of this vault has format 3, and this build reads up to 2"
)

// Example returns a version of one of the examples.
func (p *Programs) Example(name, version string) (string, error) {
	ldflags := "-X main.version=" + version
	if name == "notes" && version == NotesBroken {
		ldflags += fmt.Sprintf(" -X 'main.fault=%s'", NotesFault)
	}
	return p.build(name+"_v"+version, module+"/examples/"+name, ldflags, false)
}

// moduleRoot is the folder that has go.mod, found from where this file lies.
func moduleRoot() string {
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		panic("rig: the source file is unknown")
	}
	return filepath.Join(filepath.Dir(file), "..", "..", "..")
}

// ModuleRoot is the folder of the module's sources.
func ModuleRoot() string { return moduleRoot() }

// programs of this test binary, made by Main.
var programs *Programs

// Main is the TestMain of a package that uses a Place: it builds what every test needs, runs the tests, and removes what it built.
func Main(m *testing.M) {
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		n := min(parallel*runtime.NumCPU(), mostParallel)
		if raceEnabled {
			n /= 2
		}
		if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil {
			panic(err) // package testing has lost a flag
		}
	}
	os.Exit(run(m))
}

// parallel is how many tests run at once for each processor: several, since most of their time is spent waiting for what the host does on purpose,
// such as watching a new version for two seconds. With the race detector in the programs it is half of that, or plugins would not come up within the
// 10 s that a host gives them.
const parallel = 4

// mostParallel bounds that where there are many processors: each test has some watchers of folders, of which systems allow
// a user 128 or so.
const mostParallel = 32

func run(m *testing.M) int {
	if runtime.GOOS == "windows" {
		fmt.Println("sox-host serve needs Linux or macOS: there is nothing to test here")
		return 0
	}
	dir, err := os.MkdirTemp("", "sxb")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := findPython(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	programs = NewPrograms(dir, raceEnabled)
	_, err = programs.Host()
	_, err2 := programs.Kit()
	if err := errors.Join(err, err2); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// kitBuild writes a stamped kit.
func (p *Programs) kitBuild(dst string, o stamp.Options) error {
	kit, err := p.Kit()
	if err != nil {
		return err
	}
	return stamp.Write(dst, kit, o)
}
