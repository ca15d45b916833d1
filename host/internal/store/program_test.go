//go:build unix

package store

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

func TestScripts(t *testing.T) {
	dir := newFolder(t)
	odd := put(t, dir, ".plain", "x", 0o644)
	for _, test := range []struct {
		name, line string
		verdict    Verdict
		reason     string
	}{
		{"shell", "#!/bin/sh\n", Ready, ""},
		{"space_and_argument", "#! /bin/sh -e\n", Ready, ""},
		{"no_newline", "#!/bin/sh", Ready, ""},
		{"missing", "#!/no/such/python\n", NoInterpreter, "/no/such/python"},
		{"carriage_return", "#!/bin/sh\r\n", NoInterpreter, "Unix line ends"},
		{"nothing_named", "#!\n", NoInterpreter, "names no interpreter"},
		{"relative", "#!python\n", NoInterpreter, "not an absolute path"},
		{"not_executable", "#!" + odd + "\n", NoInterpreter, "not executable"},
		{"folder", "#!/tmp\n", NoInterpreter, "not executable"},
		{"env", "#!/usr/bin/env sh\n", Ready, ""},
		{"env_split", "#!/usr/bin/env -S A=1 sh -e\n", Ready, ""},
		{"env_missing", "#!/usr/bin/env no-such-interpreter\n", NoInterpreter, `"no-such-interpreter" is not on PATH`},
	} {
		t.Run(test.name, func(t *testing.T) {
			put(t, dir, "s_v1.0.0", test.line, 0o755)
			f := scanOne(t, dir, "s_v1.0.0")
			if f.Verdict != test.verdict {
				t.Errorf("%s (%s), want %s", f.Verdict, f.Reason, test.verdict)
			}
			contains(t, f.Reason, test.reason)
		})
	}
}

// The running test binary is a whole program for this system, cut anywhere it is
// not, and under another machine's number it is another machine's.
func TestNativePrograms(t *testing.T) {
	if runtime.GOOS == "darwin" {
		t.Skip("the cases are ELF files, which this system does not run")
	}
	dir := newFolder(t)
	whole := readAll(t, must(os.Executable()))
	check := func(name string, content []byte, verdict Verdict, reason string) {
		t.Helper()
		put(t, dir, name, string(content), 0o755)
		f := scanOne(t, dir, name)
		if f.Verdict != verdict {
			t.Errorf("%s is %s (%s), want %s", name, f.Verdict, f.Reason, verdict)
		}
		contains(t, f.Reason, reason)
	}
	check("whole_v1.0.0", whole, Ready, "")
	for _, part := range []struct {
		name string
		size int
	}{
		{"cut_v1.0.0", 4}, {"cut_v1.0.1", 63}, {"cut_v1.0.2", 64}, {"cut_v1.0.3", 4096},
		{"cut_v1.0.4", len(whole) / 4}, {"cut_v1.0.5", len(whole) * 99 / 100}, {"cut_v1.0.6", len(whole) - 1},
	} {
		check(part.name, whole[:part.size], Truncated, "copy it again")
	}
	foreign := append([]byte(nil), whole...)
	machine, text := uint16(183), "arm64"
	if runtime.GOARCH == "arm64" {
		machine, text = 62, "amd64"
	}
	binary.LittleEndian.PutUint16(foreign[18:], machine)
	check("foreign_v1.0.0", foreign, WrongArch, "a program for "+text+"; this system is "+runtime.GOOS+"/"+runtime.GOARCH)
}

// header64 returns the start of an ELF file for this machine with one segment.
func header64(t *testing.T, segment uint32, content string) []byte {
	t.Helper()
	file := make([]byte, 64+56)
	copy(file, "\x7fELF\x02\x01\x01")
	copy(file[18:], readAll(t, must(os.Executable()))[18:20]) // the machine
	le := binary.LittleEndian
	le.PutUint64(file[32:], 64) // program headers follow the header
	le.PutUint16(file[54:], 56)
	le.PutUint16(file[56:], 1)
	le.PutUint32(file[64:], segment)
	le.PutUint64(file[64+8:], uint64(len(file)))
	le.PutUint64(file[64+32:], uint64(len(content)))
	return append(file, content...)
}

func TestELFDetails(t *testing.T) {
	if runtime.GOOS == "darwin" {
		t.Skip("the cases are ELF files, which this system does not run")
	}
	dir := newFolder(t)
	const load, interp = 1, 3
	huge := header64(t, load, "code")
	binary.LittleEndian.PutUint64(huge[64+8:], ^uint64(0))
	wrapping := header64(t, load, "code")
	binary.LittleEndian.PutUint64(wrapping[40:], ^uint64(0)-3)
	library := header64(t, load, "")
	binary.LittleEndian.PutUint16(library[56:], 0)
	longLoader := header64(t, interp, "/x")
	binary.LittleEndian.PutUint64(longLoader[64+32:], 5000)
	longLoader = append(longLoader, make([]byte, 6000)...)
	for name, test := range map[string]struct {
		content []byte
		verdict Verdict
		reason  string
	}{
		"static_v1.0.0":   {header64(t, load, "code"), Ready, ""},
		"loader_v1.0.0":   {header64(t, interp, "/lib/ld-musl-none.so.1\x00"), NoInterpreter, "/lib/ld-musl-none.so.1"},
		"found_v1.0.0":    {header64(t, interp, "/bin/sh\x00"), Ready, ""},
		"huge_v1.0.0":     {huge, Truncated, "copy it again"},
		"wrapping_v1.0.0": {wrapping, Truncated, "copy it again"},
		"library_v1.0.0":  {library, BadFormat, "not a program"},
		"long_v1.0.0":     {longLoader, BadFormat, "5000 bytes"},
	} {
		put(t, dir, name, string(test.content), 0o755)
		f := scanOne(t, dir, name)
		if f.Verdict != test.verdict {
			t.Errorf("%s is %s (%s), want %s", name, f.Verdict, f.Reason, test.verdict)
		}
		contains(t, f.Reason, test.reason)
	}
}

func TestProgramsOfOtherSystems(t *testing.T) {
	dir := newFolder(t)
	windows := make([]byte, 0x90)
	copy(windows, "MZ")
	windows[0x3c] = 0x80
	copy(windows[0x80:], "PE\x00\x00\x64\x86")
	fat := []byte{0xca, 0xfe, 0xba, 0xbe, 0, 0, 0, 2}
	for _, cpu := range []byte{7, 12} { // amd64 and arm64, with the 64-bit flag
		fat = append(fat, 1, 0, 0, cpu)
		fat = append(fat, make([]byte, 16)...)
	}
	type foreign struct {
		content []byte
		reason  string
	}
	programs := map[string]foreign{
		"win_v1.0.0": {windows, "windows/amd64"},
		"win_v1.0.1": {[]byte("MZ"), "windows/unknown"},
	}
	if runtime.GOOS != "darwin" {
		programs["mac_v1.0.0"] = foreign{[]byte{0xcf, 0xfa, 0xed, 0xfe, 12, 0, 0, 1, 0, 0, 0, 0}, "darwin/arm64"}
		programs["fat_v1.0.0"] = foreign{fat, "darwin/amd64+arm64"}
	}
	for name, test := range programs {
		put(t, dir, name, string(test.content), 0o755)
		f := scanOne(t, dir, name)
		if f.Verdict != WrongArch {
			t.Errorf("%s is %s (%s)", name, f.Verdict, f.Reason)
		}
		contains(t, f.Reason, test.reason, runtime.GOOS+"/"+runtime.GOARCH)
	}
}

func FuzzProgram(f *testing.F) {
	f.Add([]byte(program))
	f.Add([]byte("#!/usr/bin/env -S\n"))
	f.Add([]byte("MZ"))
	f.Add([]byte{0xca, 0xfe, 0xba, 0xbe, 0xff, 0xff, 0xff, 0xff, 1, 2, 3})
	elf32 := make([]byte, 200)
	copy(elf32, "\x7fELF\x01\x02\x01")
	f.Add(elf32)
	elf64 := make([]byte, 200)
	copy(elf64, "\x7fELF\x02\x01\x01")
	elf64[18], elf64[32], elf64[54], elf64[56] = 62, 64, 56, 2
	f.Add(elf64)
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(t.TempDir(), "p")
		if err := os.WriteFile(path, content, 0o700); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		info, err := file.Stat()
		if err != nil {
			t.Fatal(err)
		}
		err = judgeProgram(file, info, path)
		if _, refused := err.(*entryError); err != nil && !refused {
			t.Errorf("an error without a verdict: %v", err)
		}
	})
}
