package exefile

import (
	"bytes"
	"debug/elf"
	"debug/macho"
	"debug/pe"
	"encoding/binary"
	"slices"
	"testing"
)

// meter counts what is read of a file.
type meter struct {
	t     *testing.T
	file  *bytes.Reader
	bytes int
}

func (m *meter) ReadAt(p []byte, at int64) (int, error) {
	if len(p) > windowBytes || at < 0 || at+int64(len(p)) > m.file.Size() {
		m.t.Errorf("%d bytes are wanted at %d of %d", len(p), at, m.file.Size())
	}
	m.bytes += len(p)
	return m.file.ReadAt(p, at)
}

// check fails if more was read than the package promises.
func (m *meter) check() {
	m.t.Helper()
	if most := 4<<20 + 4<<16; m.bytes > most {
		m.t.Errorf("%d bytes were read, want at most %d", m.bytes, most)
	}
}

// The longest tables that a header can claim cost no more than is promised, also where an entry fills a page.
func TestReadBounds(t *testing.T) {
	le := binary.LittleEndian
	for _, sections := range [][]uint16{{64, 0xffff}, {4033, 1040}, {0xffff, 64}, {0xffff, 0xffff}} {
		content := append(elf64(), make([]byte, 5<<20)...)
		content = changed(content, le, 54, []uint16{57, 1149, sections[0], sections[1]})
		file := &meter{t: t, file: bytes.NewReader(content)}
		p, err := Read(file, int64(len(content)))
		if err != nil {
			t.Fatal(err)
		}
		if file.bytes < 57*1149 {
			t.Errorf("%d bytes of the segments were read", file.bytes)
		}
		if _, err := p.SectionsEnd(file); err != nil {
			t.Fatal(err)
		}
		file.check()
	}
}

// FuzzRead: no file makes Read fail or read without measure, and what debug/elf understands has the same segments,
// sections and loader here.
func FuzzRead(f *testing.F) {
	for _, content := range [][]byte{
		nil, []byte("\x7f"), []byte("MZ"), []byte("#!/usr/bin/env -S\n"),
		elf64(), elf64()[:180], elf32(),
		thin(macho.CpuArm64), fat(macho.CpuAmd64, macho.CpuArm64), fat(), fatOld(),
		windows(pe.IMAGE_FILE_MACHINE_AMD64),
	} {
		f.Add(content)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		file := &meter{t: t, file: bytes.NewReader(content)}
		p, err := Read(file, int64(len(content)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.SectionsEnd(file); err != nil {
			t.Fatal(err)
		}
		file.check()
		switch p.Kind {
		case ELF:
			if !p.Cut && len(p.Arches) != 1 {
				t.Errorf("architectures %q", p.Arches)
			}
			if p.Loader != nil && (len(p.Loader.Path) > MaxLoader || uint64(len(p.Loader.Path)) > p.Loader.Bytes) {
				t.Errorf("a loader of %d bytes has a path of %d", p.Loader.Bytes, len(p.Loader.Path))
			}
			compareELF(t, content)
		case MachO:
			if len(p.Arches) >= fatCount {
				t.Errorf("%d architectures", len(p.Arches))
			}
			compareMachO(t, content, p)
		case PE:
			if p.Cut != (len(p.Arches) == 0) {
				t.Errorf("got %+v", p)
			}
		case Unknown, Script:
			if len(p.Arches) != 0 || p.Loader != nil || p.Segments != 0 {
				t.Errorf("got %+v", p)
			}
		}
	})
}

// compareMachO: a program that debug/macho reads has the same CPUs. Cut is no part of the comparison: a 64-bit header
// without its last four bytes is whole to debug/macho.
func compareMachO(t *testing.T, content []byte, p Program) {
	t.Helper()
	var want []string
	if universal, err := macho.NewFatFile(bytes.NewReader(content)); err == nil {
		for _, arch := range universal.Arches {
			want = append(want, machoArch(uint32(arch.Cpu)))
		}
	} else if thin, err := macho.NewFile(bytes.NewReader(content)); err == nil {
		want = append(want, machoArch(uint32(thin.Cpu)))
	} else {
		return
	}
	if !slices.Equal(p.Arches, want) {
		t.Errorf("architectures %q, want %q", p.Arches, want)
	}
}

// The seeds that are meant to be whole are so for the standard library, too; the comparisons would be empty otherwise.
func TestSeedsAreWhole(t *testing.T) {
	for name, content := range map[string][]byte{"elf64": elf64(), "elf32": elf32()} {
		if _, err := elf.NewFile(bytes.NewReader(content)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := macho.NewFile(bytes.NewReader(thin(macho.CpuArm64))); err != nil {
		t.Errorf("thin: %v", err)
	}
	if _, err := macho.NewFatFile(bytes.NewReader(fat(macho.CpuAmd64, macho.CpuArm64))); err != nil {
		t.Errorf("fat: %v", err)
	}
	if _, err := pe.NewFile(bytes.NewReader(windows(pe.IMAGE_FILE_MACHINE_AMD64))); err != nil {
		t.Errorf("windows: %v", err)
	}
}
