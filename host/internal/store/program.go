package store

import (
	"bytes"
	"debug/elf"
	"debug/macho"
	"debug/pe"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// judgeProgram says whether the kernel would run the file, and if not, why. The
// kernel's own answer to most of these is "exec format error" or, for a missing
// interpreter, "no such file or directory".
func judgeProgram(file io.ReaderAt, info fs.FileInfo, path string) error {
	if runtime.GOOS != "windows" && info.Mode()&0o111 == 0 {
		return refuse(NotExecutable, "no execute permission (mode %04o): run: chmod +x %s", info.Mode().Perm(), quoteArg(path))
	}
	head := make([]byte, 512) // a #! line is cut by the kernel at 256
	n, err := file.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return refuse(Unreadable, "cannot read it: %v", cause(err))
	}
	head = head[:n]
	switch {
	case bytes.HasPrefix(head, []byte("#!")):
		return judgeScript(head)
	case bytes.HasPrefix(head, []byte(elf.ELFMAG)):
		return judgeELF(file, info.Size(), head)
	case bytes.HasPrefix(head, []byte("MZ")):
		return judgePE(file)
	case isMachO(head):
		return judgeMachO(file, head)
	}
	return refuse(BadFormat, "neither a program for %s/%s nor a script with a #! line", runtime.GOOS, runtime.GOARCH)
}

func judgeScript(head []byte) error {
	if runtime.GOOS == "windows" {
		return refuse(BadFormat, "a #! script does not run on Windows: use a manifest that names its interpreter")
	}
	line, _, complete := bytes.Cut(head[2:], []byte("\n"))
	if bytes.HasSuffix(line, []byte("\r")) {
		return refuse(NoInterpreter, "its #! line ends with a carriage return: save it with Unix line ends")
	}
	if !complete && len(line) > 253 {
		return refuse(NoInterpreter, "its #! line is longer than 255 bytes")
	}
	fields := strings.Fields(string(line))
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

// elfMachines are the machines a system runs. The first is its own; the others
// run in the kernel's compatibility mode.
var elfMachines = map[string][]elf.Machine{
	"386":     {elf.EM_386},
	"amd64":   {elf.EM_X86_64, elf.EM_386},
	"arm":     {elf.EM_ARM},
	"arm64":   {elf.EM_AARCH64, elf.EM_ARM},
	"loong64": {elf.EM_LOONGARCH},
	"mips":    {elf.EM_MIPS}, "mipsle": {elf.EM_MIPS}, "mips64": {elf.EM_MIPS}, "mips64le": {elf.EM_MIPS},
	"ppc64": {elf.EM_PPC64}, "ppc64le": {elf.EM_PPC64},
	"riscv64": {elf.EM_RISCV},
	"s390x":   {elf.EM_S390},
}

// elfLayout is the part of an ELF header that says where everything lies.
type elfLayout struct {
	machine                  elf.Machine
	programs, sections       uint64 // file offsets of the header tables
	programSize, sectionSize uint64 // bytes of one table entry
	programCount             uint64
	sectionCount             uint64
	wide                     bool // ELF64
	order                    binary.ByteOrder
}

// judgeELF checks machine, completeness and interpreter. Sections reach to the end
// of the file, so a copy cut anywhere is seen; a start would not show it, because
// a program cut in its debug data still runs.
func judgeELF(file io.ReaderAt, size int64, head []byte) error {
	layout, err := parseELF(head)
	if err != nil {
		return err
	}
	if runtime.GOOS == "windows" || runtime.GOOS == "darwin" {
		return refuse(WrongArch, "an ELF program for %s; this system is %s/%s", machineText(layout.machine), runtime.GOOS, runtime.GOARCH)
	}
	if known := elfMachines[runtime.GOARCH]; known != nil && !slices.Contains(known, layout.machine) {
		return refuse(WrongArch, "a program for %s; this system is %s/%s: build or download that one", machineText(layout.machine), runtime.GOOS, runtime.GOARCH)
	}
	if err := judgeSections(file, size, layout); err != nil {
		return err
	}
	return judgeSegments(file, size, layout)
}

// judgeSections checks that every section lies within the file. Stripped files
// may have none.
func judgeSections(file io.ReaderAt, size int64, l elfLayout) error {
	const maxTable = 4 << 20 // bytes; 65,535 entries of 64, the most a header can say
	table := l.sectionSize * l.sectionCount
	if l.sections > uint64(size) || table > uint64(size)-l.sections {
		return truncated(size, max(l.sections, l.sections+table))
	}
	entry := uint64(64)
	if !l.wide {
		entry = 40
	}
	if table == 0 || table > maxTable || l.sectionSize < entry {
		return nil
	}
	headers := make([]byte, table)
	if _, err := file.ReadAt(headers, int64(l.sections)); err != nil {
		return refuse(Unreadable, "cannot read it: %v", cause(err))
	}
	for ; uint64(len(headers)) >= l.sectionSize; headers = headers[l.sectionSize:] {
		kind := elf.SectionType(l.order.Uint32(headers[4:]))
		var offset, length uint64
		if l.wide {
			offset, length = l.order.Uint64(headers[24:]), l.order.Uint64(headers[32:])
		} else {
			offset, length = uint64(l.order.Uint32(headers[16:])), uint64(l.order.Uint32(headers[20:]))
		}
		if kind == elf.SHT_NULL || kind == elf.SHT_NOBITS {
			continue
		}
		if offset > uint64(size) || length > uint64(size)-offset {
			return truncated(size, max(offset, offset+length))
		}
	}
	return nil
}

func truncated(size int64, need uint64) error {
	return refuse(Truncated, "an incomplete copy: %d of at least %d bytes: copy it again", size, need)
}

func parseELF(head []byte) (elfLayout, error) {
	var l elfLayout
	if len(head) < 64 {
		return l, refuse(Truncated, "an ELF header cut after %d bytes: copy it again", len(head))
	}
	l.wide = elf.Class(head[elf.EI_CLASS]) == elf.ELFCLASS64
	l.order = binary.LittleEndian
	if elf.Data(head[elf.EI_DATA]) == elf.ELFDATA2MSB {
		l.order = binary.BigEndian
	}
	u16 := func(at int) uint64 { return uint64(l.order.Uint16(head[at:])) }
	l.machine = elf.Machine(u16(18))
	if l.wide {
		l.programs, l.sections = l.order.Uint64(head[32:]), l.order.Uint64(head[40:])
		l.programSize, l.programCount = u16(54), u16(56)
		l.sectionSize, l.sectionCount = u16(58), u16(60)
	} else {
		l.programs, l.sections = uint64(l.order.Uint32(head[28:])), uint64(l.order.Uint32(head[32:]))
		l.programSize, l.programCount = u16(42), u16(44)
		l.sectionSize, l.sectionCount = u16(46), u16(48)
	}
	return l, nil
}

func judgeSegments(file io.ReaderAt, size int64, l elfLayout) error {
	const maxTable = 64 << 10 // bytes; linkers write a dozen entries of 56
	table := l.programSize * l.programCount
	entry := uint64(56)
	if !l.wide {
		entry = 32
	}
	if table == 0 || table > maxTable || l.programSize < entry {
		return refuse(BadFormat, "an ELF file that is not a program")
	}
	if l.programs > uint64(size) || l.programs+table > uint64(size) {
		return truncated(size, l.programs+table)
	}
	headers := make([]byte, table)
	if _, err := file.ReadAt(headers, int64(l.programs)); err != nil {
		return refuse(Unreadable, "cannot read it: %v", cause(err))
	}
	for ; uint64(len(headers)) >= l.programSize; headers = headers[l.programSize:] {
		kind := elf.ProgType(l.order.Uint32(headers))
		var offset, length uint64
		if l.wide {
			offset, length = l.order.Uint64(headers[8:]), l.order.Uint64(headers[32:])
		} else {
			offset, length = uint64(l.order.Uint32(headers[4:])), uint64(l.order.Uint32(headers[16:]))
		}
		if kind != elf.PT_LOAD && kind != elf.PT_INTERP {
			continue
		}
		if offset > uint64(size) || length > uint64(size)-offset {
			return truncated(size, max(offset, offset+length))
		}
		if kind == elf.PT_INTERP {
			if err := judgeLoader(file, offset, length); err != nil {
				return err
			}
		}
	}
	return nil
}

func judgeLoader(file io.ReaderAt, offset, length uint64) error {
	if length > 4096 { // PATH_MAX
		return refuse(BadFormat, "an ELF file with a loader path of %d bytes", length)
	}
	name := make([]byte, length)
	if _, err := file.ReadAt(name, int64(offset)); err != nil {
		return refuse(Unreadable, "cannot read it: %v", cause(err))
	}
	loader := string(bytes.TrimRight(name, "\x00"))
	if _, err := os.Stat(loader); err != nil {
		return refuse(NoInterpreter, "its loader %s: %v: it was linked for another C library; link it statically (CGO_ENABLED=0) or install that library", clip(loader), cause(err))
	}
	return nil
}

func machineText(m elf.Machine) string {
	for arch, machines := range elfMachines {
		if machines[0] == m && len(arch) > 0 && !strings.HasPrefix(arch, "mips") && !strings.HasPrefix(arch, "ppc") {
			return arch
		}
	}
	return strings.ToLower(strings.TrimPrefix(m.String(), "EM_"))
}

func isMachO(head []byte) bool {
	if len(head) < 8 {
		return false
	}
	big, little := binary.BigEndian.Uint32(head), binary.LittleEndian.Uint32(head)
	return little == macho.Magic32 || little == macho.Magic64 || big == macho.MagicFat
}

// machoCPUs maps architectures to the CPU types a system runs; arm64 Macs run
// amd64 programs by translation.
var machoCPUs = map[string][]macho.Cpu{
	"amd64": {macho.CpuAmd64},
	"arm64": {macho.CpuArm64, macho.CpuAmd64},
}

func judgeMachO(file io.ReaderAt, head []byte) error {
	cpus := machoTypes(head)
	if runtime.GOOS == "darwin" {
		for _, cpu := range cpus {
			if slices.Contains(machoCPUs[runtime.GOARCH], cpu) {
				return nil
			}
		}
	}
	var names []string
	for _, cpu := range cpus {
		names = append(names, strings.ToLower(strings.TrimPrefix(cpu.String(), "Cpu")))
	}
	return refuse(WrongArch, "a program for darwin/%s; this system is %s/%s", strings.Join(names, "+"), runtime.GOOS, runtime.GOARCH)
}

func machoTypes(head []byte) []macho.Cpu {
	if binary.BigEndian.Uint32(head) != macho.MagicFat {
		return []macho.Cpu{macho.Cpu(binary.LittleEndian.Uint32(head[4:]))}
	}
	var cpus []macho.Cpu
	const entry = 20 // bytes of one architecture in a universal file
	for at := 8; at+entry <= len(head) && len(cpus) < int(binary.BigEndian.Uint32(head[4:])); at += entry {
		cpus = append(cpus, macho.Cpu(binary.BigEndian.Uint32(head[at:])))
	}
	return cpus
}

var peMachines = map[uint16]string{
	pe.IMAGE_FILE_MACHINE_AMD64: "amd64",
	pe.IMAGE_FILE_MACHINE_ARM64: "arm64",
	pe.IMAGE_FILE_MACHINE_I386:  "386",
}

func judgePE(file io.ReaderAt) error {
	var field [6]byte
	machine := "unknown"
	if _, err := file.ReadAt(field[:4], 0x3c); err == nil {
		if _, err := file.ReadAt(field[:], int64(binary.LittleEndian.Uint32(field[:]))); err == nil {
			number := binary.LittleEndian.Uint16(field[4:])
			machine = peMachines[number]
			if machine == "" {
				machine = fmt.Sprintf("machine %#x", number)
			}
		}
	}
	if runtime.GOOS == "windows" && machine == runtime.GOARCH {
		return nil
	}
	return refuse(WrongArch, "a program for windows/%s; this system is %s/%s", machine, runtime.GOOS, runtime.GOARCH)
}
