package store

import (
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/sox-host/sox-host/host/internal/exefile"
)

// judgeProgram says whether the kernel would run the file, and if not, why. The
// kernel's own answer to most of these is "exec format error" or, for a missing
// interpreter, "no such file or directory".
func judgeProgram(file io.ReaderAt, info fs.FileInfo, path string) error {
	if runtime.GOOS != "windows" && info.Mode()&0o111 == 0 {
		return refuse(NotExecutable, "no execute permission (mode %04o): run: chmod +x %s", info.Mode().Perm(), QuoteArg(path))
	}
	program, err := exefile.Read(file, info.Size())
	if err != nil {
		return refuse(Unreadable, "cannot read it: %v", cause(err))
	}
	switch program.Kind {
	case exefile.Script:
		return judgeScript(program)
	case exefile.ELF:
		return judgeELF(program, file, info.Size())
	case exefile.PE:
		return judgePE(program)
	case exefile.MachO:
		return judgeMachO(program)
	}
	return refuse(BadFormat, "neither a program for %s/%s nor a script with a #! line", runtime.GOOS, runtime.GOARCH)
}

func judgeScript(program exefile.Program) error {
	if runtime.GOOS == "windows" {
		return refuse(BadFormat, "a #! script does not run on Windows: use a manifest that names its interpreter")
	}
	if strings.HasSuffix(program.Line, "\r") {
		return refuse(NoInterpreter, "its #! line ends with a carriage return: save it with Unix line ends")
	}
	if !program.LineEnds && len(program.Line) > 253 { // the kernel cuts the line at 256 bytes
		return refuse(NoInterpreter, "its #! line is longer than 255 bytes")
	}
	fields := strings.Fields(program.Line)
	if len(fields) == 0 {
		return refuse(NoInterpreter, "its #! line names no interpreter")
	}
	if err := checkInterpreter(fields[0]); err != nil {
		return err
	}
	if path.Base(fields[0]) != "env" {
		return nil
	}
	for _, field := range fields[1:] {
		if strings.HasPrefix(field, "-") || strings.Contains(field, "=") {
			continue
		}
		if _, err := exec.LookPath(field); err != nil {
			return refuse(NoInterpreter, "its interpreter %q is not on PATH: install it, or name it by its path in the #! line", clip(field))
		}
		break
	}
	return nil
}

func checkInterpreter(name string) error {
	if !filepath.IsAbs(name) {
		return refuse(NoInterpreter, "its interpreter %q is not an absolute path", clip(name))
	}
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return refuse(NoInterpreter, "its interpreter %s: %v: install it or change the first line", clip(name), cause(err))
	case info.IsDir() || info.Mode()&0o111 == 0:
		return refuse(NoInterpreter, "its interpreter %s is not executable", clip(name))
	}
	return nil
}

// runs reports whether this system runs programs for arch: its own, and those
// that run in the kernel's compatibility mode.
func runs(arch string) bool {
	if arch == runtime.GOARCH {
		return true
	}
	switch runtime.GOARCH {
	case "amd64":
		return arch == "386"
	case "arm64":
		return arch == "arm"
	case "mips64":
		return arch == "mips"
	case "mips64le":
		return arch == "mipsle"
	}
	return false
}

// judgeELF checks machine, completeness and interpreter.
func judgeELF(program exefile.Program, file io.ReaderAt, size int64) error {
	if program.Cut {
		return refuse(Truncated, "an ELF header cut after %d bytes: copy it again", size)
	}
	arch := program.Arches[0]
	if runtime.GOOS == "windows" || runtime.GOOS == "darwin" {
		return refuse(WrongArch, "an ELF program for %s; this system is %s/%s", arch, runtime.GOOS, runtime.GOARCH)
	}
	if !runs(arch) {
		return refuse(WrongArch, "a program for %s; this system is %s/%s: build or download that one", arch, runtime.GOOS, runtime.GOARCH)
	}
	whole, err := program.SectionsEnd(file)
	switch {
	case err != nil:
		return refuse(Unreadable, "cannot read it: %v", cause(err))
	case whole > uint64(size):
		return truncated(size, whole)
	case program.Segments == 0:
		return refuse(BadFormat, "an ELF file that is not a program")
	case program.Segments > uint64(size):
		return truncated(size, program.Segments)
	case program.Loader != nil:
		return judgeLoader(program.Loader)
	}
	return nil
}

func truncated(size int64, need uint64) error {
	return refuse(Truncated, "an incomplete copy: %d of at least %d bytes: copy it again", size, need)
}

func judgeLoader(loader *exefile.Loader) error {
	if loader.Bytes > exefile.MaxLoader {
		return refuse(BadFormat, "an ELF file with a loader path of %d bytes", loader.Bytes)
	}
	if _, err := os.Stat(loader.Path); err != nil {
		return refuse(NoInterpreter, "its loader %s: %v: it was linked for another C library; link it statically (CGO_ENABLED=0) or install that library", clip(loader.Path), cause(err))
	}
	return nil
}

func judgeMachO(program exefile.Program) error {
	translated := func(arch string) bool { return arch == "amd64" && runtime.GOARCH == "arm64" }
	if runtime.GOOS == "darwin" && (slices.Contains(program.Arches, runtime.GOARCH) || slices.ContainsFunc(program.Arches, translated)) {
		return nil
	}
	return refuse(WrongArch, "a program for darwin/%s; this system is %s/%s", strings.Join(program.Arches, "+"), runtime.GOOS, runtime.GOARCH)
}

func judgePE(program exefile.Program) error {
	arch := "unknown"
	if len(program.Arches) > 0 {
		arch = program.Arches[0]
	}
	if runtime.GOOS == "windows" && arch == runtime.GOARCH {
		return nil
	}
	return refuse(WrongArch, "a program for windows/%s; this system is %s/%s", arch, runtime.GOOS, runtime.GOARCH)
}
