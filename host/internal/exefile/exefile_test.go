package exefile

import (
	"bytes"
	"debug/elf"
	"debug/macho"
	"debug/pe"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
)

// The files of the tests are put together from the standard library's structures, and so are no copy of what this
// package believes of them.

func encode(order binary.ByteOrder, parts ...any) []byte {
	var out bytes.Buffer
	for _, part := range parts {
		if err := binary.Write(&out, order, part); err != nil {
			panic(err)
		}
	}
	return out.Bytes()
}

// ident begins an ELF file.
func ident(class elf.Class, data elf.Data) (id [elf.EI_NIDENT]byte) {
	copy(id[:], elf.ELFMAG)
	id[elf.EI_CLASS], id[elf.EI_DATA], id[elf.EI_VERSION] = byte(class), byte(data), byte(elf.EV_CURRENT)
	return id
}

const loaderPath = "/lib/ld-test.so.1"

// elf64 is a program for amd64 of 500 bytes: header, a segment with the loader's path, one with code, the names of the
// sections at 400, and the table of sections.
func elf64() []byte {
	order := binary.LittleEndian
	header := elf.Header64{
		Ident: ident(elf.ELFCLASS64, elf.ELFDATA2LSB), Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64),
		Version: uint32(elf.EV_CURRENT), Phoff: 64, Phentsize: 56, Phnum: 2, Shoff: 300, Shentsize: 64, Shnum: 3, Shstrndx: 2,
		Ehsize: 64,
	}
	out := encode(order, header,
		elf.Prog64{Type: uint32(elf.PT_INTERP), Off: 200, Filesz: uint64(len(loaderPath) + 1)},
		elf.Prog64{Type: uint32(elf.PT_LOAD), Off: 0, Filesz: 280, Memsz: 900})
	out = append(out, make([]byte, 300-len(out))...)
	copy(out[200:], loaderPath)
	out = append(out, encode(order,
		elf.Section64{},
		elf.Section64{Type: uint32(elf.SHT_NOBITS), Off: 280, Size: 5000, Name: 1},
		elf.Section64{Type: uint32(elf.SHT_STRTAB), Off: 492, Size: 8, Name: 1})...)
	return append(out, "\x00.names\x00"...)
}

// elf32 is a big-endian program for mips without sections, of 150 bytes. Its first segment is none that is loaded.
func elf32() []byte {
	header := elf.Header32{
		Ident: ident(elf.ELFCLASS32, elf.ELFDATA2MSB), Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_MIPS),
		Version: uint32(elf.EV_CURRENT), Phoff: 52, Phentsize: 32, Phnum: 2, Ehsize: 52,
	}
	out := encode(binary.BigEndian, header,
		elf.Prog32{Type: uint32(elf.PT_NOTE), Off: 1000, Filesz: 1000},
		elf.Prog32{Type: uint32(elf.PT_LOAD), Off: 100, Filesz: 50})
	return append(out, make([]byte, 150-len(out))...)
}

// thin is a macOS program without load commands, of 40 bytes.
func thin(cpu macho.Cpu) []byte {
	header := macho.FileHeader{Magic: macho.Magic64, Cpu: cpu, Type: macho.TypeExec}
	out := encode(binary.LittleEndian, header)
	return append(out, make([]byte, 40-len(out))...)
}

// fat is a universal macOS program.
func fat(cpus ...macho.Cpu) []byte {
	out := encode(binary.BigEndian, macho.MagicFat, uint32(len(cpus)))
	for i, cpu := range cpus {
		out = append(out, encode(binary.BigEndian, macho.FatArchHeader{
			Cpu: cpu, Offset: uint32(8 + 20*len(cpus) + 40*i), Size: 40,
		})...)
	}
	for _, cpu := range cpus {
		out = append(out, thin(cpu)...)
	}
	return out
}

// fatOld is a universal program with a big-endian image.
func fatOld() []byte {
	image := encode(binary.BigEndian, macho.FileHeader{Magic: macho.Magic32, Cpu: macho.CpuPpc, Type: macho.TypeExec})
	return append(fat(macho.CpuPpc)[:28], append(image, make([]byte, 40-len(image))...)...)
}

// windows is a program for Windows without sections.
func windows(machine uint16) []byte {
	dos := make([]byte, 0x80)
	copy(dos, "MZ")
	dos[0x3c] = 0x80
	return append(append(dos, "PE\x00\x00"...), encode(binary.LittleEndian, pe.FileHeader{Machine: machine})...)
}

// changed is b with n at offset at.
func changed(b []byte, order binary.ByteOrder, at int, n any) []byte {
	out := bytes.Clone(b)
	copy(out[at:], encode(order, n))
	return out
}

func read(t *testing.T, content []byte) (Program, uint64) {
	t.Helper()
	file := bytes.NewReader(content)
	p, err := Read(file, int64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	end, err := p.SectionsEnd(file)
	if err != nil {
		t.Fatal(err)
	}
	return p, end
}

func TestRead(t *testing.T) {
	le, be := binary.LittleEndian, binary.BigEndian
	amd64, mips := []string{"amd64"}, []string{"mips"}
	loader := &Loader{loaderPath, uint64(len(loaderPath) + 1)}
	const most = math.MaxUint64
	for name, test := range map[string]struct {
		content  []byte
		want     Program
		sections uint64
	}{
		"nothing":              {nil, Program{}, 0},
		"text":                 {[]byte("hello\n"), Program{}, 0},
		"start_of_elf":         {[]byte("\x7fEL"), Program{Cut: true}, 0},
		"cut_in_elf_header":    {elf64()[:63], Program{Kind: ELF, Cut: true}, 0},
		"elf64":                {elf64(), Program{Kind: ELF, Arches: amd64, Segments: 280, Loader: loader}, 500},
		"cut_in_sections":      {elf64()[:499], Program{Kind: ELF, Arches: amd64, Segments: 280, Loader: loader}, 500},
		"cut_in_section_table": {elf64()[:491], Program{Kind: ELF, Arches: amd64, Segments: 280, Loader: loader}, 492},
		"cut_in_code":          {elf64()[:279], Program{Kind: ELF, Arches: amd64, Segments: 280, Loader: loader}, 492},
		"cut_in_loader": {elf64()[:210], Program{Kind: ELF, Arches: amd64, Segments: 280,
			Loader: &Loader{"", loader.Bytes}}, 492},
		"cut_in_segment_table": {elf64()[:175], Program{Kind: ELF, Arches: amd64, Segments: 176}, 492},
		"object_file":          {changed(elf64(), le, 56, uint16(0)), Program{Kind: ELF, Arches: amd64}, 500},
		"short_segment_entries": {changed(elf64(), le, 54, uint16(55)), Program{Kind: ELF, Arches: amd64},
			500},
		"too_many_segments": {changed(elf64(), le, 56, uint16(0xffff)), Program{Kind: ELF, Arches: amd64}, 500},
		"segment_beyond_everything": {changed(elf64(), le, 64+56+8, uint64(most)),
			Program{Kind: ELF, Arches: amd64, Segments: most, Loader: loader}, 500},
		"segments_beyond_everything": {changed(elf64(), le, 32, uint64(most)),
			Program{Kind: ELF, Arches: amd64, Segments: most}, 500},
		"sections_beyond_everything": {changed(elf64(), le, 40, uint64(most-1)),
			Program{Kind: ELF, Arches: amd64, Segments: 280, Loader: loader}, most},
		"section_beyond_everything": {changed(elf64(), le, 300+2*64+24, uint64(most-3)),
			Program{Kind: ELF, Arches: amd64, Segments: 280, Loader: loader}, most},
		"short_section_entries": {changed(elf64(), le, 58, uint16(63)),
			Program{Kind: ELF, Arches: amd64, Segments: 280, Loader: loader}, 489},
		"long_loader": {changed(elf64(), le, 64+32, uint64(4097)),
			Program{Kind: ELF, Arches: amd64, Segments: 4297, Loader: &Loader{"", 4097}}, 500},
		"two_loaders": {changed(elf64(), le, 64+56, uint32(3)),
			Program{Kind: ELF, Arches: amd64, Segments: 280, Loader: loader}, 500},
		"elf32_big_endian":     {elf32(), Program{Kind: ELF, Arches: mips, Segments: 150}, 0},
		"elf32_cut":            {elf32()[:149], Program{Kind: ELF, Arches: mips, Segments: 150}, 0},
		"thin":                 {thin(macho.CpuArm64), Program{Kind: MachO, Arches: []string{"arm64"}}, 0},
		"thin_cut":             {thin(macho.CpuArm64)[:31], Program{Kind: MachO, Arches: []string{"arm64"}, Cut: true}, 0},
		"thin_without_a_cpu":   {thin(macho.CpuArm64)[:7], Program{}, 0},
		"thin_with_a_command":  {changed(thin(macho.CpuAmd64), le, 20, uint32(8)), Program{Kind: MachO, Arches: amd64}, 0},
		"thin_cut_in_commands": {changed(thin(macho.CpuAmd64), le, 20, uint32(9)), Program{Kind: MachO, Arches: amd64, Cut: true}, 0},
		"fat":                  {fat(macho.CpuAmd64, macho.CpuArm64), Program{Kind: MachO, Arches: []string{"amd64", "arm64"}}, 0},
		"fat_cut":              {fat(macho.CpuAmd64, macho.CpuArm64)[:119], Program{Kind: MachO, Arches: []string{"amd64", "arm64"}, Cut: true}, 0},
		"fat_cut_in_its_table": {fat(macho.CpuAmd64, macho.CpuArm64)[:47], Program{Kind: MachO, Arches: amd64, Cut: true}, 0},
		"fat_of_nothing":       {fat(), Program{Kind: MachO, Cut: true}, 0},
		"fat_of_something_else": {changed(fat(macho.CpuAmd64), le, 28, uint32(0)),
			Program{Kind: MachO, Arches: amd64, Cut: true}, 0},
		"fat_with_a_big_endian_image": {fatOld(), Program{Kind: MachO, Arches: []string{"ppc"}}, 0},
		"java_class":                  {changed(fat(macho.CpuAmd64), be, 4, uint32(52)), Program{}, 0},
		"windows":                     {windows(pe.IMAGE_FILE_MACHINE_AMD64), Program{Kind: PE, Arches: amd64}, 0},
		"windows_cut":                 {windows(pe.IMAGE_FILE_MACHINE_AMD64)[:0x85], Program{Kind: PE, Cut: true}, 0},
		"windows_far":                 {changed(windows(1), le, 0x3c, uint32(math.MaxUint32)), Program{Kind: PE, Cut: true}, 0},
		"dos":                         {changed(windows(1), le, 0x80, uint32(0)), Program{Kind: PE, Cut: true}, 0},
		"two_bytes_of_dos":            {[]byte("MZ"), Program{Kind: PE, Cut: true}, 0},
		"script":                      {[]byte("#! /bin/sh -e\r\nexit\n"), Program{Kind: Script, Line: " /bin/sh -e\r", LineEnds: true}, 0},
		"script_of_a_line":            {[]byte("#!/bin/sh"), Program{Kind: Script, Line: "/bin/sh"}, 0},
		"script_long_line": {[]byte("#!" + strings.Repeat("x", 600) + "\n"),
			Program{Kind: Script, Line: strings.Repeat("x", 510)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, sections := read(t, test.content)
			got.sections, got.elf, got.size = elfTable{}, elfLayout{}, 0
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %+v\nwant %+v", got, test.want)
			}
			if sections != test.sections {
				t.Errorf("sections end at %d, want %d", sections, test.sections)
			}
		})
	}
}

// What is far from the head of a file is found, too.
func TestReadFarTables(t *testing.T) {
	const far = 20_000
	file := append(elf64(), make([]byte, far-500)...)
	file = append(file, elf64()[64:64+2*56]...)
	copy(file[far-8_000:], "/far/loader")
	le := binary.LittleEndian
	file = changed(file, le, 32, uint64(far))
	file = changed(file, le, far+8, uint64(far-8_000))
	file = changed(file, le, far+32, uint64(12))
	got, _ := read(t, file)
	if want := (Loader{"/far/loader", 12}); got.Loader == nil || *got.Loader != want || got.Segments != far+2*56 {
		t.Errorf("got %+v, loader %+v", got, got.Loader)
	}
}

func TestReadErrors(t *testing.T) {
	broken := errors.New("broken")
	if _, err := Read(failing{broken}, 100); !errors.Is(err, broken) {
		t.Errorf("got %v, want the file's error", err)
	}
	file := bytes.NewReader(elf64())
	p, err := Read(file, 500)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.SectionsEnd(failing{broken}); !errors.Is(err, broken) {
		t.Errorf("got %v for the sections, want the file's error", err)
	}
	if _, err := p.SectionsEnd(bytes.NewReader(elf64()[:350])); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v for a file that became shorter", err)
	}
	if _, err := Read(bytes.NewReader(elf64()[:100]), 500); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v for a file that became shorter within its segments", err)
	}
}

type failing struct{ err error }

func (f failing) ReadAt([]byte, int64) (int, error) { return iotest.ErrReader(f.err).Read(nil) }

// The program that runs this test is as debug/elf sees it.
func TestOwnProgram(t *testing.T) {
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p, _ := read(t, content)
	if p.Cut || len(p.Arches) != 1 || p.Arches[0] != runtime.GOARCH {
		t.Errorf("got %+v on %s", p, runtime.GOARCH)
	}
	if p.Kind != ELF {
		return // a Mach-O or PE file, of which no more is read
	}
	compareELF(t, content)
}

// compareELF compares what Read and debug/elf say about a file, and reports whether debug/elf understands it.
func compareELF(t *testing.T, content []byte) bool {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return false
	}
	defer f.Close()
	got, sections := read(t, content)
	if got.Kind != ELF {
		t.Errorf("kind %d", got.Kind)
	}
	var segments uint64
	var path string
	var found bool
	for _, s := range f.Progs {
		if s.Type != elf.PT_LOAD && s.Type != elf.PT_INTERP {
			continue
		}
		segments = max(segments, plus(s.Off, s.Filesz))
		if s.Type == elf.PT_INTERP && !found {
			found = true
			if s.Filesz <= MaxLoader && plus(s.Off, s.Filesz) <= uint64(len(content)) {
				path = strings.TrimRight(string(content[s.Off:s.Off+s.Filesz]), "\x00")
			}
		}
	}
	// The end of the table of segments is known to neither; it comes first in every linked file.
	if got.Segments != 0 && got.Segments < segments {
		t.Errorf("segments end at %d, want %d", got.Segments, segments)
	}
	if got.Segments != 0 && (got.Loader != nil) != found || got.Loader != nil && got.Loader.Path != path {
		t.Errorf("loader %+v, want %t %q", got.Loader, found, path)
	}
	for _, s := range f.Sections {
		if s.Type != elf.SHT_NULL && s.Type != elf.SHT_NOBITS && sections < plus(s.Offset, s.FileSize) && got.sections.count > 0 {
			t.Errorf("sections end at %d, before section %q", sections, s.Name)
		}
	}
	return true
}

func TestELFNames(t *testing.T) {
	ports := map[elf.Machine][4]string{ // 32 and 64 bits, big- and little-endian
		elf.EM_386:       {"386", "386", "386", "386"},
		elf.EM_X86_64:    {"amd64", "amd64", "amd64", "amd64"},
		elf.EM_ARM:       {"arm", "arm", "arm", "arm"},
		elf.EM_AARCH64:   {"arm64", "arm64", "arm64", "arm64"},
		elf.EM_LOONGARCH: {"loong64", "loong64", "loong64", "loong64"},
		elf.EM_MIPS:      {"mips", "mipsle", "mips64", "mips64le"},
		elf.EM_PPC64:     {"ppc64", "ppc64le", "ppc64", "ppc64le"},
		elf.EM_RISCV:     {"riscv64", "riscv64", "riscv64", "riscv64"},
		elf.EM_S390:      {"s390x", "s390x", "s390x", "s390x"},
	}
	layouts := [4]elfLayout{{false, binary.BigEndian}, {false, binary.LittleEndian}, {true, binary.BigEndian}, {true, binary.LittleEndian}}
	named := 0
	for machine := range elf.Machine(math.MaxUint16) {
		port, ported := ports[machine]
		if !ported && strings.HasPrefix(layouts[0].arch(uint16(machine)), "machine ") {
			continue
		}
		named++
		for i, l := range layouts {
			want := strings.ToLower(strings.TrimPrefix(machine.String(), "EM_"))
			if ported {
				want = port[i]
			}
			if got := l.arch(uint16(machine)); got != want {
				t.Errorf("machine %d is %q, want %q", machine, got, want)
			}
		}
	}
	if named < 20 {
		t.Errorf("only %d machines have a name", named)
	}
	if got := layouts[0].arch(0xfffe); got != "machine 0xfffe" {
		t.Errorf("a machine without a name is %q", got)
	}
}

func TestMachONames(t *testing.T) {
	for _, cpu := range []macho.Cpu{macho.Cpu386, macho.CpuAmd64, macho.CpuArm, macho.CpuArm64, macho.CpuPpc, macho.CpuPpc64} {
		if got, want := machoArch(uint32(cpu)), strings.ToLower(strings.TrimPrefix(cpu.String(), "Cpu")); got != want {
			t.Errorf("CPU %d is %q, want %q", cpu, got, want)
		}
	}
	if got := machoArch(99); got != "machine 0x63" {
		t.Errorf("a CPU without a name is %q", got)
	}
}

func TestPENames(t *testing.T) {
	for machine, want := range map[uint16]string{
		pe.IMAGE_FILE_MACHINE_I386:  "386",
		pe.IMAGE_FILE_MACHINE_ARMNT: "arm",
		pe.IMAGE_FILE_MACHINE_AMD64: "amd64",
		pe.IMAGE_FILE_MACHINE_ARM64: "arm64",
		0x1234:                      "machine 0x1234",
	} {
		if got := peArch(machine); got != want {
			t.Errorf("machine %#x is %q, want %q", machine, got, want)
		}
	}
}
