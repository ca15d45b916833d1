//go:build linux || darwin

package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sox-host/sox-host/host/internal/exefile"
)

// startFailure turns the error of a launch into a StartError, by looking at the
// file where the error number has several causes.
func startFailure(spec Spec, err error) *StartError {
	failed := &StartError{Plugin: spec.Plugin, Path: spec.Path, Kind: KindOther, Err: err}
	var guard *guardError
	switch {
	case errors.As(err, &guard):
		failed.Kind = KindGuard
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		failed.Kind = KindLimit
	case errors.Is(err, syscall.E2BIG):
		failed.Kind, failed.Detail = KindSpec, "arguments and environment are too long together"
	case errors.Is(err, syscall.ETXTBSY):
		failed.Kind, failed.Detail = KindBusy, "another process is writing to the file"
	default:
		if kind, detail := diagnose(spec.Path, spec.Dir, err); kind != "" {
			failed.Kind, failed.Detail = kind, detail
		}
	}
	return failed
}

// diagnose finds out why an exec of path in dir failed with err. It returns an
// empty kind if the file shows no reason.
func diagnose(path, dir string, err error) (StartKind, string) {
	if dir != "" {
		// The child changes its folder before the exec, with the same errors.
		if info, err := os.Stat(dir); err != nil {
			return KindDir, err.Error()
		} else if !info.IsDir() {
			return KindDir, dir + " is not a folder"
		} else if err := unix.Access(dir, unix.X_OK); err != nil {
			return KindDir, dir + ": " + err.Error()
		}
	}
	info, statErr := os.Stat(path)
	switch {
	case errors.Is(statErr, os.ErrNotExist):
		if target, err := os.Readlink(path); err == nil {
			return KindMissing, "a link to " + target + ", which does not exist"
		}
		return KindMissing, ""
	case statErr != nil:
		return KindOther, statErr.Error()
	case info.IsDir():
		return KindDirectory, ""
	case !info.Mode().IsRegular():
		return KindFormat, "not a regular file: " + info.Mode().Type().String()
	case info.Size() == 0:
		return KindEmpty, ""
	case info.Mode()&0o111 == 0 || unix.Access(path, unix.X_OK) != nil && !mountedNoexec(path):
		return KindNotExecutable, fmt.Sprintf("mode %04o; run: chmod u+x %s", info.Mode().Perm(), path)
	case mountedNoexec(path) && errors.Is(err, syscall.EACCES):
		return KindNoexec, "move the folder to another file system, or mount this one without noexec"
	}
	program, readErr := readProgram(path, info.Size())
	if readErr != nil {
		return KindOther, readErr.Error()
	}
	return diagnoseFormat(program, info.Size(), err)
}

// diagnoseFormat explains a failed exec by what the file of size bytes is.
func diagnoseFormat(program exefile.Program, size int64, err error) (StartKind, string) {
	switch program.Kind {
	case exefile.Script:
		return diagnoseScript(program.Line, err)
	case exefile.ELF:
		return diagnoseELF(program, size, err)
	case exefile.MachO:
		return diagnoseMachO(program)
	case exefile.PE:
		return KindWrongArch, "built for windows" + thisMachine()
	}
	switch {
	case program.Cut:
		return KindTruncated, fmt.Sprintf("only %d bytes", size)
	case errors.Is(err, syscall.ENOEXEC):
		return KindFormat, "neither a program of this system nor a script that begins with #!"
	}
	return "", ""
}

// diagnoseScript looks for the interpreter in the first line, which is given
// without its #!.
func diagnoseScript(line string, err error) (StartKind, string) {
	fields := strings.Fields(line)
	if strings.HasSuffix(line, "\r") {
		return KindInterpreter, fmt.Sprintf("the first line ends with a carriage return, so %q is looked for; save the file with Unix line ends", strings.Trim(line, " \t"))
	}
	if len(fields) == 0 {
		return KindInterpreter, "the first line names none after #!"
	}
	switch info, statErr := os.Stat(fields[0]); {
	case statErr != nil:
		return KindInterpreter, fields[0]
	case info.IsDir() || unix.Access(fields[0], unix.X_OK) != nil:
		return KindInterpreter, fields[0] + " cannot be executed"
	case mountedNoexec(fields[0]) && errors.Is(err, syscall.EACCES):
		return KindNoexec, "the interpreter " + fields[0] + " is"
	}
	return "", ""
}

// diagnoseELF tells an incomplete program, one for another machine, and one
// whose loader is not installed apart.
func diagnoseELF(program exefile.Program, size int64, err error) (StartKind, string) {
	switch {
	case program.Cut:
		return KindTruncated, fmt.Sprintf("only %d bytes, less than its header", size)
	case program.Segments > uint64(size):
		return KindTruncated, fmt.Sprintf("%d bytes of at least %d", size, program.Segments)
	case runtime.GOOS != "linux":
		return KindWrongArch, "built for linux/" + program.Arches[0] + thisMachine()
	case program.Arches[0] != runtime.GOARCH:
		return KindWrongArch, "built for " + program.Arches[0] + thisMachine()
	}
	if loader := program.Loader; loader != nil && loader.Path != "" && errors.Is(err, syscall.ENOENT) {
		if _, err := os.Stat(loader.Path); err != nil {
			return KindInterpreter, loader.Path + "; the program was linked for another C library"
		}
	}
	return "", ""
}

// diagnoseMachO names the architectures of a macOS program.
func diagnoseMachO(program exefile.Program) (StartKind, string) {
	switch {
	case program.Cut:
		return KindTruncated, "a macOS program whose headers are incomplete"
	case runtime.GOOS == "darwin" && slices.Contains(program.Arches, runtime.GOARCH):
		return "", ""
	}
	return KindWrongArch, "built for darwin/" + strings.Join(program.Arches, " and darwin/") + thisMachine()
}

// thisMachine ends a sentence about another one.
func thisMachine() string {
	return ", this machine is " + runtime.GOOS + "/" + runtime.GOARCH
}

// cutProgram reports whether path is an ELF program that ends before its own
// segments do. The kernel starts such a file, and it dies of SIGSEGV.
func cutProgram(path string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return false // the exec will say why not
	}
	program, err := readProgram(path, info.Size())
	return err == nil && program.Kind == exefile.ELF && program.Segments > uint64(info.Size()) &&
		program.Arches[0] == runtime.GOARCH
}

// readProgram reads the head of the program at path, a regular file of size
// bytes.
func readProgram(path string, size int64) (exefile.Program, error) {
	file, err := os.Open(path)
	if err != nil {
		return exefile.Program{}, err
	}
	defer file.Close()
	return exefile.Read(file, size)
}

// mountedNoexec reports whether path lies on a file system that executes
// nothing.
func mountedNoexec(path string) bool {
	var fs unix.Statfs_t
	if err := unix.Statfs(filepath.Clean(path), &fs); err != nil {
		return false
	}
	return uint64(fs.Flags)&mountNoexec != 0
}
