package store

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxName is the longest plugin name: 32 characters leave room for a tool's name
// within the 46 that clients accept for both together.
const maxName = 32

// ValidName says whether s can name a plugin: ^[a-z][a-z0-9-]{0,31}$. Written out,
// because compiling the pattern took a tenth of the start of the whole program.
func ValidName(s string) bool {
	if s == "" || len(s) > maxName || s[0] < 'a' || s[0] > 'z' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// unnamed is the reason for entries that do not look like a plugin at all.
const unnamed = "not named NAME_vX.Y.Z"

const nameRule = "a name starts with a letter a-z and has at most 32 characters a-z, 0-9 and -"

const (
	sidecarSuffix = ".sha256"
	jsonSuffix    = ".json"
	exeSuffix     = ".exe"
)

// ignoredSuffixes belong to documents, archives and the leftovers of editors,
// compilers and downloads. No version ends like this by accident, and a file that
// does is never run.
var ignoredSuffixes = []string{
	"~", ".bak", ".orig", ".swp", ".swo", ".tmp", ".temp", ".part", ".partial", ".crdownload", ".download",
	".md", ".txt", ".log", ".yaml", ".yml", ".toml", ".html", ".pdf",
	".gz", ".tgz", ".tar", ".xz", ".bz2", ".zst", ".zip", ".7z",
	".asc", ".sig", ".pem", ".sbom", ".dSYM", ".pdb", ".lock",
}

// goosNames and goarchNames are the values Go knows for GOOS and GOARCH; they
// keep a typing error in a file name from hiding a plugin as "another system".
var (
	goosNames = []string{"aix", "android", "darwin", "dragonfly", "freebsd", "illumos", "ios", "js", "linux", "netbsd", "openbsd", "plan9", "solaris", "wasip1", "windows"}

	goarchNames = []string{"386", "amd64", "arm", "arm64", "loong64", "mips", "mips64", "mips64le", "mipsle", "ppc64", "ppc64le", "riscv64", "s390x", "wasm"}
)

// classify fills Name, Version, Kind, OS and Arch from the entry's name. A
// verdict other than "" is final: the entry is not opened. Entries named like
// nothing we know get Ignored; folder.go turns it into BadName when the entry
// turns out to be a program.
func classify(entry string) File {
	var f File
	switch {
	case strings.HasPrefix(entry, "."):
		f.Verdict, f.Reason = Ignored, "hidden file"
	case strings.HasSuffix(entry, sidecarSuffix):
		f.Verdict, f.Reason = Sidecar, ""
	case slices.ContainsFunc(ignoredSuffixes, func(suffix string) bool { return strings.HasSuffix(entry, suffix) }):
		f.Verdict, f.Reason = Ignored, "not a plugin by its file name"
	default:
		f = classifyPlugin(entry)
	}
	return f
}

func classifyPlugin(entry string) File {
	stem, isJSON := strings.CutSuffix(entry, jsonSuffix)
	stem, isExe := strings.CutSuffix(stem, exeSuffix)
	name, rest, versioned := cutVersion(stem)
	if !versioned {
		if !isJSON {
			return File{Verdict: Ignored, Reason: unnamed}
		}
		if !ValidName(stem) {
			return File{Verdict: BadName, Reason: fmt.Sprintf("settings file for %q: %s%s", clip(stem), nameRule, renameAdvice(entry))}
		}
		return File{Name: stem, Verdict: SettingsFile}
	}
	f := File{Kind: Binary}
	if isJSON {
		f.Kind = Manifest
	}
	if !ValidName(name) {
		f.Verdict, f.Reason = BadName, fmt.Sprintf("plugin name %q: %s%s", clip(name), nameRule, renameAdvice(entry))
		return f
	}
	f.Name = name
	version, system, hasSystem := strings.Cut(rest, "_")
	v, err := parseBareVersion(version)
	if err != nil {
		f.Verdict, f.Reason = BadVersion, fmt.Sprintf("version %q: %v", clip(version), err)
		return f
	}
	f.Version = v
	if hasSystem {
		var ok bool
		f.OS, f.Arch, ok = strings.Cut(system, "_")
		if !ok || !slices.Contains(goosNames, f.OS) || !slices.Contains(goarchNames, f.Arch) {
			f.OS, f.Arch = "", ""
			f.Verdict = BadName
			f.Reason = fmt.Sprintf("%q after the version is not an OS_ARCH such as linux_amd64 or darwin_arm64", clip(system))
			return f
		}
	} else if isExe {
		f.OS, f.Arch = "windows", "amd64"
	}
	return f
}

// PlainName turns what somebody calls a plugin into a name that it can have, "" if there is none.
func PlainName(s string) string {
	letters := false // of other alphabets, which have no plain form
	s = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		letters = letters || r >= utf8.RuneSelf
		return '-'
	}, strings.ToLower(s))
	s = strings.TrimRight(strings.TrimLeft(s, "-0123456789"), "-")
	if letters || !ValidName(s) {
		return ""
	}
	return s
}

// plainEntry is the name that an entry would have with a plain name and a small v; "" if that is none either.
func plainEntry(entry string) string {
	stem, suffix := entry, ""
	if name, _, ok := cutVersion(strings.ReplaceAll(entry, "_V", "_v")); ok {
		stem, suffix = name, "_v"+entry[len(name)+len("_v"):]
	} else if stem, ok = strings.CutSuffix(entry, jsonSuffix); ok {
		suffix = jsonSuffix
	}
	name := PlainName(stem)
	if name == "" {
		return ""
	}
	plain := name + suffix
	if f := classify(plain); f.Name == "" || f.Verdict != "" && f.Verdict != SettingsFile || plain == entry {
		return ""
	}
	return plain
}

// renameAdvice ends the reason of a bad name with a good one, if there is one.
func renameAdvice(entry string) string {
	if plain := plainEntry(entry); plain != "" {
		return ": rename it to " + plain
	}
	return ""
}

// cutVersion splits NAME_vREST where REST starts like a version. A plugin name
// has no underscore, so the first "_v" decides; a name that has one is reported
// as a bad name and not as an unknown file.
func cutVersion(stem string) (name, rest string, ok bool) {
	for offset := 0; ; {
		i := strings.Index(stem[offset:], "_v")
		if i < 0 {
			return "", "", false
		}
		i += offset
		if after := stem[i+2:]; after != "" && after[0] >= '0' && after[0] <= '9' {
			return stem[:i], after, true
		}
		offset = i + 2
	}
}

// stagedName is the file name of a build inside the store.
func stagedName(f File) string {
	suffix := ""
	switch {
	case f.Kind == Manifest:
		suffix = jsonSuffix
	case filepath.Ext(f.Path) == exeSuffix:
		suffix = exeSuffix
	}
	return f.Name + "_v" + f.Version.String() + suffix
}
