//go:build linux || darwin

package process

import (
	"bytes"
	"debug/elf"
	"debug/macho"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// headBytes is how much of a program is read to see what it is. Linux itself
// looks at the first 256 bytes; program headers may lie a little further.
const headBytes = 4096

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
	head, err2 := readHead(path)
	if err2 != nil {
		return KindOther, err2.Error()
	}
	return diagnoseFormat(path, head, info.Size(), err)
}

// diagnoseFormat explains a failed exec by the first bytes of the program.
func diagnoseFormat(path string, head []byte, size int64, err error) (StartKind, string) {
	switch {
	case bytes.HasPrefix(head, []byte("#!")):
		return diagnoseScript(head, err)
	case bytes.HasPrefix(head, []byte(elf.ELFMAG)):
		return diagnoseELF(path, head, size, err)
	case isMachO(head):
		return diagnoseMachO(path)
	case bytes.HasPrefix(head, []byte("MZ")):
		return KindWrongArch, "built for windows" + thisMachine()
	case size < 4 && bytes.HasPrefix([]byte(elf.ELFMAG), head):
		return KindTruncated, fmt.Sprintf("only %d bytes", size)
	case errors.Is(err, syscall.ENOEXEC):
		return KindFormat, "neither a program of this system nor a script that begins with #!"
	}
	return "", ""
}

// diagnoseScript looks for the interpreter in the first line.
func diagnoseScript(head []byte, err error) (StartKind, string) {
	line, _, _ := bytes.Cut(head[2:], []byte{'\n'})
	fields := strings.Fields(string(line))
	if strings.HasSuffix(string(line), "\r") {
		return KindInterpreter, fmt.Sprintf("the first line ends with a carriage return, so %q is looked for; save the file with Unix line ends", strings.Trim(string(line), " \t"))
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
func diagnoseELF(path string, head []byte, size int64, err error) (StartKind, string) {
	h, ok := parseELF(head)
	switch {
	case !ok:
		return KindTruncated, fmt.Sprintf("only %d bytes, less than its header", size)
	case h.end > size:
		return KindTruncated, fmt.Sprintf("%d bytes of at least %d", size, h.end)
	case runtime.GOOS != "linux":
		return KindWrongArch, "built for linux/" + h.arch + thisMachine()
	case h.arch != runtime.GOARCH:
		return KindWrongArch, "built for " + h.arch + thisMachine()
	}
	if loader := elfLoader(path); loader != "" && errors.Is(err, syscall.ENOENT) {
		if _, err := os.Stat(loader); err != nil {
			return KindInterpreter, loader + "; the program was linked for another C library"
		}
	}
	return "", ""
}

// elfHeader is what matters here of an ELF file.
type elfHeader struct {
	arch string // as GOARCH, or the machine's name in the format
	end  int64  // the file must be at least this long, bytes
}

// parseELF reads the header and the program headers, and reports whether they
// are all there. debug/elf is of no use for cut files: it wants the section
// headers, which come last and which running does not need.
func parseELF(head []byte) (elfHeader, bool) {
	const ident = 16
	if len(head) < 52 {
		return elfHeader{}, false
	}
	var order binary.ByteOrder = binary.LittleEndian
	if elf.Data(head[elf.EI_DATA]) == elf.ELFDATA2MSB {
		order = binary.BigEndian
	}
	machine := elf.Machine(order.Uint16(head[ident+2:]))
	h := elfHeader{arch: archName(machine, order)}
	var at, each, count int64
	wide := elf.Class(head[elf.EI_CLASS]) == elf.ELFCLASS64
	if wide {
		if len(head) < 64 {
			return h, false
		}
		at, each, count = int64(order.Uint64(head[32:])), int64(order.Uint16(head[54:])), int64(order.Uint16(head[56:]))
	} else {
		at, each, count = int64(order.Uint32(head[28:])), int64(order.Uint16(head[42:])), int64(order.Uint16(head[44:]))
	}
	if at < 0 || at > 1<<40 {
		return h, true
	}
	h.end = at + each*count
	for i := range count {
		from := at + i*each
		if each < 32 || wide && each < 56 || from+each > int64(len(head)) {
			break // further away than head; the first ones decide
		}
		entry := head[from:]
		var offset, length uint64
		if wide {
			offset, length = order.Uint64(entry[8:]), order.Uint64(entry[32:])
		} else {
			offset, length = uint64(order.Uint32(entry[4:])), uint64(order.Uint32(entry[16:]))
		}
		if elf.ProgType(order.Uint32(entry)) == elf.PT_LOAD && offset < 1<<40 && length < 1<<40 {
			h.end = max(h.end, int64(offset+length))
		}
	}
	return h, true
}

// archName translates an ELF machine to Go's word for it.
func archName(machine elf.Machine, order binary.ByteOrder) string {
	little := order == binary.LittleEndian
	switch machine {
	case elf.EM_X86_64:
		return "amd64"
	case elf.EM_386:
		return "386"
	case elf.EM_AARCH64:
		return "arm64"
	case elf.EM_ARM:
		return "arm"
	case elf.EM_RISCV:
		return "riscv64"
	case elf.EM_S390:
		return "s390x"
	case elf.EM_LOONGARCH:
		return "loong64"
	case elf.EM_PPC64:
		if little {
			return "ppc64le"
		}
		return "ppc64"
	}
	return strings.ToLower(strings.TrimPrefix(machine.String(), "EM_"))
}

// elfLoader returns the dynamic loader a program asks for, or "".
func elfLoader(path string) string {
	file, err := elf.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	for _, segment := range file.Progs {
		if segment.Type == elf.PT_INTERP && segment.Filesz < headBytes {
			name := make([]byte, segment.Filesz)
			if _, err := segment.ReadAt(name, 0); err == nil {
				return string(bytes.TrimRight(name, "\x00"))
			}
		}
	}
	return ""
}

// isMachO reports whether head begins a macOS program. A fat file shares its
// number with Java classes, which have a version above 40 where it has the
// count of architectures.
func isMachO(head []byte) bool {
	if len(head) < 8 {
		return false
	}
	switch binary.LittleEndian.Uint32(head) {
	case macho.Magic32, macho.Magic64:
		return true
	}
	return binary.BigEndian.Uint32(head) == macho.MagicFat && binary.BigEndian.Uint32(head[4:]) < 20
}

// diagnoseMachO names the architectures of a macOS program.
func diagnoseMachO(path string) (StartKind, string) {
	var built []string
	if fat, err := macho.OpenFat(path); err == nil {
		defer fat.Close()
		for _, arch := range fat.Arches {
			built = append(built, machoArch(arch.Cpu))
		}
	} else if thin, err := macho.Open(path); err == nil {
		defer thin.Close()
		built = append(built, machoArch(thin.Cpu))
	} else {
		return KindTruncated, "a macOS program whose headers are incomplete"
	}
	for _, arch := range built {
		if runtime.GOOS == "darwin" && arch == runtime.GOARCH {
			return "", ""
		}
	}
	return KindWrongArch, "built for darwin/" + strings.Join(built, " and darwin/") + thisMachine()
}

// machoArch translates a Mach-O CPU to Go's word for it.
func machoArch(cpu macho.Cpu) string {
	switch cpu {
	case macho.CpuAmd64:
		return "amd64"
	case macho.CpuArm64:
		return "arm64"
	}
	return strings.ToLower(strings.TrimPrefix(cpu.String(), "Cpu"))
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
	head, err := readHead(path)
	if err != nil || !bytes.HasPrefix(head, []byte(elf.ELFMAG)) {
		return false
	}
	h, whole := parseELF(head)
	return whole && h.arch == runtime.GOARCH && h.end > info.Size()
}

// readHead returns the first headBytes of a regular file.
func readHead(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	head := make([]byte, headBytes)
	n, err := io.ReadFull(file, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return head[:n], nil
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
