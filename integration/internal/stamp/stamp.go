// Package stamp turns one kit binary into any version of any plugin: a JSON object behind the end of the executable says what it is and how it
// behaves. That makes a build in milliseconds, with bytes of its own, where linking takes seconds.
//
//	executable │ JSON of Options │ length of the JSON, 8 bytes big endian │ magic
package stamp

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"
)

const (
	magic = "sox-kit\n"

	// EnvOverlay holds a JSON object of Options that is laid over those in the binary, so that settings can change a running plugin's behaviour
	// from one start to the next.
	EnvOverlay = "KIT_OPTIONS"

	// EnvFile names a file of the same kind, read at each start; a missing file is an empty object. It wins over EnvOverlay.
	EnvFile = "KIT_FILE"
)

// Options are the identity and behaviour of one kit build. Durations are milliseconds.
type Options struct {
	Name    string `json:"name,omitempty"`    // "kit" by default; plain methods are NAME.*
	Version string `json:"version,omitempty"` // "1.0.0" by default
	Says    string `json:"says,omitempty"`    // version it reports, when that is not Version

	BootMark    string `json:"boot_mark,omitempty"`     // file that gets a line at each start
	BootDelayMS int    `json:"boot_delay_ms,omitempty"` // before the ready frame
	BootUntil   string `json:"boot_until,omitempty"`    // not ready before this file exists
	BootHang    bool   `json:"boot_hang,omitempty"`     // never ready
	BootExit    int    `json:"boot_exit,omitempty"`     // exit code, at once
	BootSays    string `json:"boot_says,omitempty"`     // line on stderr at start
	LockFile    string `json:"lock_file,omitempty"`     // exits unless it can lock this file
	Exclusive   bool   `json:"exclusive,omitempty"`     // declares that two instances must not run at once
	Snapshot    bool   `json:"snapshot,omitempty"`      // hands its counter over

	ExitAfterList    bool   `json:"exit_after_list,omitempty"`
	CrashAfterListMS int    `json:"crash_after_list_ms,omitempty"` // after the first answer to tools/list
	CrashAfterCallMS int    `json:"crash_after_call_ms,omitempty"` // after the first call
	CrashUnless      string `json:"crash_unless,omitempty"`        // no crash if this file exists
	CrashAfterBootMS int    `json:"crash_after_boot_ms,omitempty"` // after it was made ready to serve

	IgnoreTerm     bool   `json:"ignore_term,omitempty"`     // ignores SIGTERM, the end of its connection, and shutdown
	ForkGrandchild string `json:"fork_grandchild,omitempty"` // "group", "session": a child that outlives it, in its process group or away from it

	List  string `json:"list,omitempty"`  // one of the Lists
	Extra int    `json:"extra,omitempty"` // extra tools "extra_N"
	Shout int    `json:"shout,omitempty"` // list_changed notifications after the first list
	Pages int    `json:"pages,omitempty"` // entries a page; 0 is everything at once
}

// Lists are the variants of the tool list that differ from the plain one as their names say.
const (
	ListPlain         = ""
	ListExtraTool     = "extra-tool"
	ListExtraProperty = "extra-property" // an optional one
	ListRequired      = "required"       // a new property that is required
	ListReordered     = "reordered"      // same meaning, other order of keys, other white space
	ListDescribed     = "described"      // another description
	ListToolRemoved   = "tool-removed"   // without "sleep"
	ListBadTool       = "bad-tool"       // one more tool, whose input schema is no object
	ListBroken        = "broken"         // "tools" is not an array
	ListMany          = "many"           // 250 tools, prompts, resources and templates
	ListCrowd         = "crowd"          // 25,000 more tools
	ListNames         = "names"          // more tools, with the names of OddNames
	ListNamesMended   = "names-mended"   // the same in another order, without the one that has no name
	ListShared        = "shared"         // one more resource, shared:///one
	ListLoop          = "loop"           // the list of tools leads back to its beginning
	ListPromptsFail   = "prompts-fail"   // the list of prompts is an error
	ListPromptsHang   = "prompts-hang"   // the list of prompts never comes
)

// OddNames are the tools of ListNames: names that clients refuse, that become equal when they are made acceptable or are
// cut to a length that clients take, and none.
var OddNames = []string{
	"with space", "with.space", "with_space", "größe", "a/b", strings.Repeat("n", 64), strings.Repeat("n", 63) + "m", "",
}

// Write makes dst, executable, from the kit binary src and o.
func Write(dst, src string, o Options) error {
	body, err := os.ReadFile(src)
	if err != nil {
		return fmt.Errorf("stamp %s: %w", dst, err)
	}
	trailer, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("stamp %s: %w", dst, err)
	}
	body = append(body, trailer...)
	body = binary.BigEndian.AppendUint64(body, uint64(len(trailer)))
	body = append(body, magic...)
	return WriteProgram(dst, body)
}

// WriteProgram writes an executable file in one step: whoever sees it sees all of it. No other goroutine of this process forks meanwhile, since a
// child that inherits a descriptor open for writing makes executing the file fail with "text file busy".
func WriteProgram(dst string, body []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	temporary := dst + ".part"
	if err := os.WriteFile(temporary, body, 0o700); err != nil {
		return err
	}
	// An old file needs no time to settle: nobody is still copying it.
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(temporary, old, old); err != nil {
		return err
	}
	return os.Rename(temporary, dst)
}

// Read returns the options of the running binary with the overlays of its environment, and the defaults filled in.
func Read() (Options, error) {
	o, err := fromSelf()
	if err != nil {
		return o, err
	}
	if overlay := os.Getenv(EnvOverlay); overlay != "" {
		if err := json.Unmarshal([]byte(overlay), &o); err != nil {
			return o, fmt.Errorf("%s: %w", EnvOverlay, err)
		}
	}
	if name := os.Getenv(EnvFile); name != "" {
		raw, err := os.ReadFile(name)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return o, fmt.Errorf("%s: %w", EnvFile, err)
		}
		if len(raw) > 0 {
			if err := json.Unmarshal(raw, &o); err != nil {
				return o, fmt.Errorf("%s: %w", EnvFile, err)
			}
		}
	}
	if o.Name == "" {
		o.Name = "kit"
	}
	if o.Version == "" {
		o.Version = "1.0.0"
	}
	if o.Says == "" {
		o.Says = o.Version
	}
	return o, nil
}

// fromSelf reads the trailer of the running binary; a binary without one has the zero Options.
func fromSelf() (Options, error) {
	var o Options
	path, err := os.Executable()
	if err != nil {
		return o, err
	}
	f, err := os.Open(path)
	if err != nil {
		return o, err
	}
	defer f.Close()
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return o, err
	}
	tail := make([]byte, 8+len(magic))
	if _, err := f.ReadAt(tail, end-int64(len(tail))); err != nil {
		return o, err
	}
	if string(tail[8:]) != magic {
		return o, nil
	}
	length := int64(binary.BigEndian.Uint64(tail))
	if length < 0 || length > end {
		return o, errors.New("the stamp at the end of the binary is damaged")
	}
	trailer := make([]byte, length)
	if _, err := f.ReadAt(trailer, end-int64(len(tail))-length); err != nil {
		return o, err
	}
	return o, json.Unmarshal(trailer, &o)
}
