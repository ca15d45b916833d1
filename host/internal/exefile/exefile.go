// Package exefile reads the head of a program file: its format, the machines it was built for, how long the file has
// to be, and which loader or interpreter it asks for. What that means for a plugin is decided by the callers.
//
// The standard library's debug/elf, debug/macho and debug/pe are made for debuggers. They want whole files, which
// those that matter here are not, and they bring DWARF and two decompressors into every start of the host. The tests
// compare this package with them.
//
// # Hostile files
//
// Every number in a file is taken for a claim. Whatever a file says, one buffer of 4 KiB and a loader's path of at
// most 4 KiB are allocated, and little more than 4 MiB are read. Ends that do not fit into 64 bits become the largest
// number that does. Functions are safe for concurrent use as far as the file is.
package exefile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
)

// Kind is the format of a file.
type Kind uint8

// The formats.
const (
	Unknown Kind = iota
	ELF
	MachO  // thin or universal
	PE     // anything that begins with MZ
	Script // a line that begins with #!
)

// MaxLoader is the longest path of a loader that is read, in bytes: PATH_MAX of Linux, which refuses a longer one.
const MaxLoader = 4096

// Program is what the head of a file says.
type Program struct {
	Kind Kind

	// Cut says that the file ends within its headers: those of the format, and in Mach-O its load commands. Of an
	// Unknown file it says that the few bytes there are could be the first of an ELF file.
	Cut bool

	// Arches are the machines the program was built for, by their names in GOARCH or else by the format's own in lower
	// case; a number without a name is "machine 0x1f". A universal Mach-O file has several. ELF has one unless it is
	// Cut. PE has none if it is Cut.
	Arches []string

	// Segments is how many bytes an ELF file must have to run: up to the end of the last part that the kernel loads,
	// of the loader's path, and of the table that lists them. It is 0 if the file is no program, as object files are.
	// The end of a table that is not in the file is all that is known.
	Segments uint64

	// Loader is what an ELF program that is linked dynamically asks for; nil if it asks for none.
	Loader *Loader

	// Line is the first line of a script after its #!, without the line end. LineEnds says that the end was seen
	// within 512 bytes; the line is cut there otherwise. The kernel looks at 256.
	Line     string
	LineEnds bool

	sections elfTable
	elf      elfLayout
	size     uint64
}

// Loader is the dynamic loader that a program asks for, PT_INTERP in ELF.
type Loader struct {
	// Path is empty if it is longer than MaxLoader or lies outside the file.
	Path string
	// Bytes is the length of the path in the file, with the zero byte at its end.
	Bytes uint64
}

// Read reads the head of a file of size bytes. Its errors are those of file, or io.ErrUnexpectedEOF if the file has
// become shorter than size; a file that makes no sense is none.
func Read(file io.ReaderAt, size int64) (Program, error) {
	w := &window{file: file, size: uint64(max(size, 0)), buffer: make([]byte, windowBytes)}
	if err := w.fill(0); err != nil && !errors.Is(err, io.EOF) {
		return Program{}, err
	}
	head := w.bytes
	switch {
	case bytes.HasPrefix(head, []byte("#!")):
		return readScript(head), nil
	case bytes.HasPrefix(head, []byte(elfMagic)):
		return readELF(w)
	case bytes.HasPrefix(head, []byte("MZ")):
		return readPE(w)
	case isMachO(head):
		return readMachO(w)
	}
	return Program{Cut: len(head) > 0 && strings.HasPrefix(elfMagic, string(head))}, nil
}

func readScript(head []byte) Program {
	const longest = 512
	line, _, ends := bytes.Cut(head[len("#!"):min(len(head), longest)], []byte("\n"))
	return Program{Kind: Script, Line: string(line), LineEnds: ends}
}

// unnamed is what a machine is called that has no name here.
func unnamed[N uint16 | uint32](machine N) string { return fmt.Sprintf("machine %#x", machine) }

// windowBytes is how much is read at once. The headers of nearly every program lie within its first page.
const windowBytes = 4096

// window reads a file a page at a time, so that reading a table entry by entry costs few calls and one buffer.
type window struct {
	file   io.ReaderAt
	size   uint64 // of the file, bytes
	buffer []byte
	bytes  []byte // what was read last, the start of buffer
	at     uint64 // where in the file bytes begin
}

// fill reads the page that begins at offset at, or what the file has of it.
func (w *window) fill(at uint64) error {
	w.at, w.bytes = at, nil
	n, err := w.file.ReadAt(w.buffer[:min(windowBytes, w.size-min(at, w.size))], int64(at))
	w.bytes = w.buffer[:n]
	if n > 0 && errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// has reports whether n bytes at offset at lie within the file.
func (w *window) has(at, n uint64) bool { return at <= w.size && n <= w.size-at }

// read returns n bytes at offset at, at most a page, which the caller has found to lie within the file. They are
// valid until the next call.
func (w *window) read(at, n uint64) ([]byte, error) {
	if at < w.at || at-w.at > uint64(len(w.bytes)) || n > uint64(len(w.bytes))-(at-w.at) {
		if err := w.fill(at); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if n > uint64(len(w.bytes)) {
			return nil, io.ErrUnexpectedEOF // it has become shorter
		}
	}
	from := at - w.at
	return w.bytes[from : from+n], nil
}

// plus adds two claims of a file.
func plus(a, b uint64) uint64 {
	if a > math.MaxUint64-b {
		return math.MaxUint64
	}
	return a + b
}
