package socket

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

// Reason says what is wrong with a folder that cannot be trusted.
type Reason string

const (
	// ReasonForeign: a symbolic link, not a folder, or in the hands of another user.
	ReasonForeign Reason = "foreign"
	// ReasonOwnWritable: the user's own folder, but group or others may write in it; umask 002 is the usual cause.
	ReasonOwnWritable Reason = "own-writable"
	// ReasonFallbackMode: the user's own [FallbackRoot], but its mode is not exactly 0700.
	ReasonFallbackMode Reason = "fallback-mode"
)

// CodeFolderUnsafe is the code of a [FolderError].
const CodeFolderUnsafe = "E_UDS_DIR_UNSAFE"

// FolderError refuses a folder that another user could reach into. Trying again cannot help; a person has to act, and Error says how.
type FolderError struct {
	Reason Reason
	// Asked is the folder that was checked.
	Asked string
	// Dir is the culprit: Asked, or one of the folders above it.
	Dir         string
	ExpectedUID int
	ActualUID   int
	// Mode of Dir: permission bits, type, sticky bit.
	Mode fs.FileMode
	// IsSymlink: Dir is a symbolic link. Then ActualUID and Mode are those of the link itself.
	IsSymlink bool
}

// Code is always [CodeFolderUnsafe].
func (e *FolderError) Code() string { return CodeFolderUnsafe }

// Error is one line: what was found, then [FolderError.Remedy].
func (e *FolderError) Error() string {
	subject := fmt.Sprintf("folder %q is not safe for sockets", e.Asked)
	if e.Dir != e.Asked {
		subject += fmt.Sprintf(" because of %q above it", e.Dir)
	}
	return fmt.Sprintf("%s: %s (reason %s, owner uid %d, expected uid %d, mode %s): %s",
		subject, e.finding(), e.Reason, e.ActualUID, e.ExpectedUID, octal(e.Mode), e.Remedy())
}

func (e *FolderError) finding() string {
	switch {
	case e.Reason == ReasonFallbackMode:
		return "its mode is not 0700"
	case e.Reason == ReasonOwnWritable:
		return "group or others can write in it"
	case e.IsSymlink:
		return "it is a symbolic link"
	case !e.Mode.IsDir():
		return "it is not a folder"
	case e.ActualUID != e.ExpectedUID && e.ActualUID != 0:
		return "it belongs to another user"
	case e.Dir != e.Asked:
		return "others can write in it and it is not yours"
	}
	return "it belongs to another user"
}

// Remedy is what a person can do, with the commands to run. It never asks for a recursive delete: the folder holds the sockets of running programs.
func (e *FolderError) Remedy() string {
	dir := shellQuote(e.Dir)
	switch e.Reason {
	case ReasonOwnWritable:
		return fmt.Sprintf("run: chmod go-w %s; do not delete the folder, running programs keep their state in it", dir)
	case ReasonFallbackMode:
		return fmt.Sprintf("run: chmod 700 %s", dir)
	}
	steps := []string{fmt.Sprintf("look at it with: ls -ld %s", dir), "take it for an impostor until you know who made it"}
	switch {
	case e.Dir != e.Asked && !e.IsSymlink && e.Mode.IsDir():
		if e.ActualUID == 0 {
			steps = append(steps, fmt.Sprintf("an administrator can run: chmod go-w %s", dir))
		}
		steps = append(steps, "or set SOX_HOME to a folder whose parents only you and root can write in")
		return strings.Join(steps, "; ")
	case e.IsSymlink:
		steps = append(steps, fmt.Sprintf("rm %s removes the link and nothing else", dir))
	}
	if underSticky(e.Dir) {
		steps = append(steps, "below /tmp only its owner or an administrator can remove it")
	} else {
		steps = append(steps, fmt.Sprintf("inside your own sox folder move it aside with: mv %s %s, then start again", dir, shellQuote(e.Dir+".aside")))
	}
	if e.Dir == FallbackRoot(e.ExpectedUID) {
		steps = append(steps, "or set SOX_HOME to a shorter path, so that this folder is not needed")
	}
	return strings.Join(steps, "; ")
}

// underSticky: a direct entry of /tmp, where the sticky bit reserves removal for the owner.
func underSticky(dir string) bool {
	parent := filepath.Dir(dir)
	return parent == "/tmp" || parent == "/private/tmp"
}

// octal is a mode as ls and chmod know it: 0755, 1777.
func octal(m fs.FileMode) string {
	bits := uint32(m.Perm())
	for flag, bit := range map[fs.FileMode]uint32{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if m&flag != 0 {
			bits |= bit
		}
	}
	return fmt.Sprintf("%04o", bits)
}

// shellQuote leaves a plain path as it is and quotes any other for a POSIX shell, so that a command can be copied from a message.
func shellQuote(s string) string {
	plain := strings.IndexFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-+:@", r))
	}) < 0
	if plain && s != "" && s[0] != '-' {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// CheckFolder says whether only this user and root can put anything into a folder. It changes nothing.
//
// The folder must be a folder and not a link to one, belong to the effective user, and not be writable by group or others; [FallbackRoot] must
// have mode 0700 exactly. Every folder above it must belong to root or the user and not be writable by others unless it is sticky; links among
// them are followed when root or the user made them. A breach is a [*FolderError]. A folder that does not exist is not unsafe: the error is
// fs.ErrNotExist.
func CheckFolder(dir string) error { return checkFolder(dir) }

// EnsureFolder creates a folder that does not exist yet, and missing ones above it, with mode 0700, and then applies [CheckFolder]. It never
// changes a folder that exists, and creates nothing below one that fails the check.
func EnsureFolder(dir string) error { return ensureFolder(dir) }
