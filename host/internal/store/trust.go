package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// FolderReason says why a folder is refused.
type FolderReason string

// The reasons. Missing unwraps to fs.ErrNotExist.
const (
	FolderMissing  FolderReason = "missing"
	FolderNotDir   FolderReason = "not-a-folder"
	FolderLink     FolderReason = "link"     // where a link is not allowed
	FolderForeign  FolderReason = "foreign"  // owned by somebody else
	FolderWritable FolderReason = "writable" // group or others may write
	FolderChanged  FolderReason = "changed"  // replaced while it was being opened
	FolderTooLarge FolderReason = "too-large"
	FolderFailed   FolderReason = "failed" // the system refused; Err says how
)

// FolderError is a refusal to use a folder. Fix is a command or an advice; nothing
// was changed.
type FolderError struct {
	Reason FolderReason
	Path   string
	UID    int         // owner, -1 when unknown
	Mode   fs.FileMode // permission bits
	Fix    string
	Err    error // cause, may be nil
}

func (e *FolderError) Error() string {
	s := fmt.Sprintf("folder %q: ", e.Path)
	switch e.Reason {
	case FolderMissing:
		s += "does not exist"
	case FolderNotDir:
		s += "is not a folder"
	case FolderLink:
		s += "is a link"
	case FolderForeign:
		s += fmt.Sprintf("belongs to uid %d, not to uid %d", e.UID, os.Geteuid())
	case FolderWritable:
		s += fmt.Sprintf("others may write it (mode %04o)", e.Mode.Perm())
	case FolderChanged:
		s += "was replaced while it was being opened"
	case FolderTooLarge:
		s += fmt.Sprintf("has more than %d entries", maxEntries)
	default:
		s += e.Err.Error()
	}
	if e.Fix != "" {
		s += ": " + e.Fix
	}
	return s
}

// Unwrap returns the cause.
func (e *FolderError) Unwrap() error { return e.Err }

// openFolder opens a folder, judges it through its descriptor and returns a root
// that can reach nothing outside it. The caller closes the root.
func openFolder(path string, allowLink bool) (*os.Root, error) {
	dir, err := openDirectory(path, allowLink)
	if err != nil {
		return nil, folderOpenError(path, err)
	}
	defer dir.Close()
	info, err := dir.Stat()
	if err != nil {
		return nil, folderOpenError(path, err)
	}
	if err := judgeFolder(path, info); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, folderOpenError(path, err)
	}
	// os.OpenRoot went by the path again; only the judged folder will do.
	if again, err := root.Stat("."); err != nil || !os.SameFile(info, again) {
		root.Close()
		return nil, &FolderError{Reason: FolderChanged, Path: path, UID: -1, Fix: "try again", Err: err}
	}
	return root, nil
}

func judgeFolder(path string, info fs.FileInfo) error {
	uid, err := ownerOf(info)
	if err != nil {
		return &FolderError{Reason: FolderFailed, Path: path, UID: -1, Err: err}
	}
	e := &FolderError{Path: path, UID: uid, Mode: info.Mode().Perm()}
	switch {
	case !info.IsDir():
		e.Reason, e.Fix = FolderNotDir, "choose another folder"
	case uid != os.Geteuid():
		e.Reason, e.Fix = FolderForeign, fmt.Sprintf("use a folder of your own, or run: sudo chown %d %s", os.Geteuid(), QuoteArg(path))
	case info.Mode().Perm()&0o022 != 0:
		e.Reason, e.Fix = FolderWritable, "run: chmod go-w "+QuoteArg(path)
	default:
		return nil
	}
	return e
}

func folderOpenError(path string, err error) error {
	e := &FolderError{Reason: FolderFailed, Path: path, UID: -1, Err: errors.Unwrap(err)}
	if e.Err == nil {
		e.Err = err
	}
	info, statErr := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && statErr == nil:
		e.Fix = "the link leads nowhere"
	case errors.Is(err, fs.ErrNotExist):
		e.Reason, e.Fix = FolderMissing, "run: mkdir -p -m 700 "+QuoteArg(path)
	case errors.Is(err, fs.ErrPermission):
		e.Fix = "check the permissions of it and of the folders above"
	case statErr == nil && info.Mode()&fs.ModeSymlink != 0:
		e.Reason, e.Fix = FolderLink, "replace it by a folder"
	case statErr == nil && !info.IsDir():
		e.Reason, e.Fix = FolderNotDir, "choose another folder"
	}
	return e
}

// QuoteArg quotes a path for the shells of people who copy a command from a
// message.
func QuoteArg(path string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			r == '/' || r == '.' || r == '_' || r == '-' || r == '+' || r == ','
	}
	for _, r := range path {
		if !plain(r) {
			return shellQuote(path)
		}
	}
	return path
}

func shellQuote(s string) string {
	quoted := []byte{'\''}
	for i := range len(s) {
		if s[i] == '\'' {
			quoted = append(quoted, `'\''`...)
		} else {
			quoted = append(quoted, s[i])
		}
	}
	return string(append(quoted, '\''))
}

// entryError is a verdict on an entry that cannot be opened as a plugin file.
type entryError struct {
	verdict Verdict
	reason  string
}

func (e *entryError) Error() string { return e.reason }

func refuse(verdict Verdict, format string, args ...any) *entryError {
	return &entryError{verdict, fmt.Sprintf(format, args...)}
}

// openEntry opens a regular file of the plugins folder for reading. A link may
// lead to another place inside the folder, never outside. It does not block on a
// FIFO and follows nothing that was swapped in after the check: the root refuses
// to leave the folder, and the descriptor is judged again. Failures are
// *entryError.
func openEntry(root *os.Root, dir, entry string) (*os.File, fs.FileInfo, error) {
	path := filepath.Join(dir, entry)
	info, err := root.Lstat(entry)
	if err != nil {
		return nil, nil, refuse(Unreadable, "cannot look at it: %v", cause(err))
	}
	inside := entry
	if info.Mode()&fs.ModeSymlink != 0 {
		if inside, err = followLink(dir, path); err != nil {
			return nil, nil, err
		}
		if info, err = root.Stat(inside); err != nil {
			return nil, nil, refuse(Unreadable, "link %s: %v", path, cause(err))
		}
	}
	if !info.Mode().IsRegular() {
		return nil, nil, refuse(NotRegular, "it is a %s, not a regular file: remove it or move it elsewhere", typeName(info.Mode()))
	}
	if err := judgeFile(filepath.Join(dir, inside), info); err != nil {
		return nil, nil, err
	}
	file, err := root.OpenFile(inside, os.O_RDONLY|openNonblock, 0)
	if err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return nil, nil, refuse(Unreadable, "permission denied: run: chmod u+r %s", QuoteArg(path))
		}
		return nil, nil, refuse(Unreadable, "cannot open it: %v", cause(err))
	}
	opened, err := file.Stat()
	if err == nil && !os.SameFile(info, opened) {
		err = errors.New("it was replaced while it was being opened: try again")
	}
	if err != nil {
		file.Close()
		return nil, nil, refuse(Unreadable, "%v", cause(err))
	}
	return file, opened, nil
}

// followLink returns the target relative to the folder.
func followLink(dir, path string) (string, error) {
	realDir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", refuse(Unreadable, "folder %s: %v", dir, cause(err))
	}
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		leads, _ := os.Readlink(path)
		return "", refuse(Unreadable, "link %s leads to %s: %v: remove the link or put the file back", path, leads, cause(err))
	}
	inside, err := filepath.Rel(realDir, target)
	if err != nil || !filepath.IsLocal(inside) {
		return "", refuse(Unsafe, "link %s leads outside the plugins folder, to %s: copy the file here instead", path, target)
	}
	return inside, nil
}

// judgeFile refuses files that somebody else could change, and set-id programs,
// which a plugin never needs.
func judgeFile(path string, info fs.FileInfo) error {
	uid, err := ownerOf(info)
	switch {
	case err != nil:
		return refuse(Unsafe, "%v", err)
	case uid != 0 && uid != os.Geteuid():
		return refuse(Unsafe, "belongs to uid %d, who could change it: run: cp it into the folder as yourself", uid)
	case info.Mode().Perm()&0o022 != 0:
		return refuse(Unsafe, "others may write it (mode %04o): run: chmod go-w %s", info.Mode().Perm(), QuoteArg(path))
	case info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0:
		return refuse(Unsafe, "it is a set-id program: run: chmod ug-s %s", QuoteArg(path))
	}
	return nil
}

func typeName(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "folder"
	case mode&fs.ModeNamedPipe != 0:
		return "named pipe"
	case mode&fs.ModeSocket != 0:
		return "socket"
	case mode&fs.ModeDevice != 0:
		return "device"
	}
	return "special file"
}

// cause strips the operation and path that package os puts before an errno; the
// messages here name the path themselves.
func cause(err error) error {
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		return pathError.Err
	}
	return err
}
