package store

import (
	"fmt"
	"runtime"
	"time"
)

// Verdict is the named result of looking at one entry of the plugins folder. The
// texts are shown to people and stable in --json output.
type Verdict string

// Ready can be staged. Settings and Sidecar are companions, Ignored is none of
// our business. All others are plugins that cannot run, each with a Reason.
const (
	Ready         Verdict = "ready"
	SettingsFile  Verdict = "settings"       // NAME.json
	Sidecar       Verdict = "sidecar"        // *.sha256; checked when its file is staged
	Ignored       Verdict = "ignored"        // hidden files, backups, documents, folders
	Settling      Verdict = "settling"       // changed a moment ago, perhaps still being written
	Ambiguous     Verdict = "ambiguous"      // the same version with different bytes
	WrongArch     Verdict = "wrong-arch"     // a program for another system
	NotExecutable Verdict = "not-executable" // no execute permission
	NoInterpreter Verdict = "no-interpreter" // a script or ELF whose interpreter is missing
	NoCommand     Verdict = "no-command"     // a manifest whose command is missing
	BadFormat     Verdict = "bad-format"     // not a program
	Truncated     Verdict = "truncated"      // an incomplete copy
	Empty         Verdict = "empty"          // no bytes
	BadName       Verdict = "bad-name"       // not NAME_vX.Y.Z
	BadVersion    Verdict = "bad-version"    // not strict SemVer
	NotRegular    Verdict = "not-regular"    // folder, FIFO, socket or device with a plugin's name
	Unsafe        Verdict = "unsafe"         // others may write it, or a link leaves the folder
	Unreadable    Verdict = "unreadable"     // cannot be opened, or a dangling link
	BadDigest     Verdict = "bad-digest"     // a sidecar without a usable digest
	BadManifest   Verdict = "bad-manifest"   // a manifest that does not decode
	BadSettings   Verdict = "bad-settings"   // settings that do not decode
	NotShareable  Verdict = "not-shareable"  // a manifest whose settings want one process for all hosts
)

// Kind says what a plugin file holds.
type Kind uint8

// NoKind is the Kind of companions and ignored entries.
const (
	NoKind   Kind = iota
	Binary        // an executable file
	Manifest      // a JSON file that names a command or a url
)

// String returns "binary", "manifest" or "".
func (k Kind) String() string {
	switch k {
	case Binary:
		return "binary"
	case Manifest:
		return "manifest"
	}
	return ""
}

// MarshalText implements encoding.TextMarshaler.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *Kind) UnmarshalText(text []byte) error {
	for _, kind := range []Kind{NoKind, Binary, Manifest} {
		if kind.String() == string(text) {
			*k = kind
			return nil
		}
	}
	return fmt.Errorf("kind %q is neither binary nor manifest", clip(string(text)))
}

// File is one entry of the plugins folder. It describes the moment of the scan;
// staging looks again.
type File struct {
	Path    string    `json:"path"`             // the folder as given, joined with the entry's name
	Name    string    `json:"name,omitempty"`   // the plugin; "" when the entry's name gives none
	Version Version   `json:"version,omitzero"` // zero when the entry's name gives none
	Kind    Kind      `json:"kind,omitempty"`
	URL     string    `json:"url,omitempty"`  // of a remote server, without its secrets
	OS      string    `json:"os,omitempty"`   // from the entry's name, "" = any
	Arch    string    `json:"arch,omitempty"` // from the entry's name, "" = any
	Verdict Verdict   `json:"verdict"`
	Reason  string    `json:"reason,omitempty"` // what is wrong, why, what to do; "" when ready
	Size    int64     `json:"size"`             // bytes
	ModTime time.Time `json:"mod_time,omitzero"`

	shared bool // settings that ask for Shared
}

// Native says that the file is named for this system.
func (f File) Native() bool {
	return f.OS == runtime.GOOS && f.Arch == runtime.GOARCH
}

// Foreign says that the file is named for another system, which is normal in a
// folder shared by several machines.
func (f File) Foreign() bool { return f.OS != "" && !f.Native() }
