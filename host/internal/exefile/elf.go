package exefile

import (
	"bytes"
	"encoding/binary"
	"io"
)

const (
	elfMagic = "\x7fELF"

	// elfHeaderBytes is the length of a 64-bit header. A 32-bit one has 52 bytes, but with its segments no program is
	// shorter than this.
	elfHeaderBytes = 64

	elfClass = 4 // offset of the byte that says how wide addresses are
	elfData  = 5 // offset of the byte that says how numbers are written

	elfClass64   = 2
	elfBigEndian = 2
)

// Segments and sections are told apart by a type. Those named here occupy bytes of the file and matter to a start
// (segments), or occupy none (sections).
const (
	segmentLoad   = 1
	segmentInterp = 3

	sectionNull   = 0
	sectionNoBits = 8
)

// The largest tables that are read, in bytes.
const (
	maxSegmentTable = 64 << 10 // linkers write a dozen entries of 56
	maxSectionTable = 4 << 20  // 65,535 entries of 64 are the most a header can say
)

// elfTable is where a file has a table, as its header claims.
type elfTable struct {
	at, each, count uint64 // offset; bytes of one entry; entries
}

// bytes cannot overflow: both factors have 16 bits.
func (t elfTable) bytes() uint64 { return t.each * t.count }

func (t elfTable) end() uint64 { return plus(t.at, t.bytes()) }

// elfLayout says how a file writes addresses and numbers, and so where the fields of a table entry are.
type elfLayout struct {
	wide  bool // 64 bits
	order binary.ByteOrder
}

// address reads the number at offset at; it has 4 or 8 bytes.
func (l elfLayout) address(b []byte, at int) uint64 {
	if l.wide {
		return l.order.Uint64(b[at:])
	}
	return uint64(l.order.Uint32(b[at:]))
}

func (l elfLayout) half(b []byte, at int) uint64 { return uint64(l.order.Uint16(b[at:])) }

// segmentBytes is the length of an entry of the table of segments.
func (l elfLayout) segmentBytes() uint64 {
	if l.wide {
		return 56
	}
	return 32
}

// segment takes the type, offset and length of a segment out of its table entry.
func (l elfLayout) segment(entry []byte) (kind uint32, offset, length uint64) {
	kind = l.order.Uint32(entry)
	if l.wide {
		return kind, l.address(entry, 8), l.address(entry, 32)
	}
	return kind, l.address(entry, 4), l.address(entry, 16)
}

// sectionBytes is the length of an entry of the table of sections.
func (l elfLayout) sectionBytes() uint64 {
	if l.wide {
		return 64
	}
	return 40
}

// section takes the type, offset and length of a section out of its table entry.
func (l elfLayout) section(entry []byte) (kind uint32, offset, length uint64) {
	kind = l.order.Uint32(entry[4:])
	if l.wide {
		return kind, l.address(entry, 24), l.address(entry, 32)
	}
	return kind, l.address(entry, 16), l.address(entry, 20)
}

func readELF(w *window) (Program, error) {
	p := Program{Kind: ELF, size: w.size}
	head := w.bytes
	if len(head) < elfHeaderBytes {
		p.Cut = true
		return p, nil
	}
	l := elfLayout{wide: head[elfClass] == elfClass64, order: binary.LittleEndian}
	if head[elfData] == elfBigEndian {
		l.order = binary.BigEndian
	}
	p.elf = l
	p.Arches = []string{l.arch(uint16(l.half(head, 18)))}
	var segments elfTable
	if l.wide {
		segments = elfTable{l.address(head, 32), l.half(head, 54), l.half(head, 56)}
		p.sections = elfTable{l.address(head, 40), l.half(head, 58), l.half(head, 60)}
	} else {
		segments = elfTable{l.address(head, 28), l.half(head, 42), l.half(head, 44)}
		p.sections = elfTable{l.address(head, 32), l.half(head, 46), l.half(head, 48)}
	}
	return p, p.readSegments(w, segments)
}

// readSegments sets Segments and Loader.
func (p *Program) readSegments(w *window, table elfTable) error {
	if table.count == 0 || table.each < p.elf.segmentBytes() || table.bytes() > maxSegmentTable {
		return nil
	}
	p.Segments = table.end()
	if p.Segments > w.size {
		return nil
	}
	var path uint64 // where the loader's is
	for i := range table.count {
		entry, err := w.read(table.at+i*table.each, p.elf.segmentBytes())
		if err != nil {
			return err
		}
		kind, offset, length := p.elf.segment(entry)
		if kind != segmentLoad && kind != segmentInterp {
			continue
		}
		p.Segments = max(p.Segments, plus(offset, length))
		if kind == segmentInterp && p.Loader == nil { // the kernel takes the first, too
			p.Loader, path = &Loader{Bytes: length}, offset
		}
	}
	if p.Loader == nil || p.Loader.Bytes > MaxLoader || !w.has(path, p.Loader.Bytes) {
		return nil
	}
	name, err := w.read(path, p.Loader.Bytes)
	if err != nil {
		return err
	}
	p.Loader.Path = string(bytes.TrimRight(name, "\x00"))
	return nil
}

// SectionsEnd is how many bytes an ELF file must have to be whole: up to the end of its last section, and of the table
// that lists them. Sections reach to the end of the file, so that a copy cut anywhere is seen; its segments, and so a
// start, would not show it, because a program cut in its debug data still runs. Stripped files may have none, which is
// 0, as for other formats. If the table is not in the file or longer than 4 MiB, its end is all that is known.
//
// p is what Read found in file. The errors are those of Read.
func (p Program) SectionsEnd(file io.ReaderAt) (uint64, error) {
	end := p.sections.end()
	if p.sections.bytes() == 0 || p.sections.each < p.elf.sectionBytes() || p.sections.bytes() > maxSectionTable ||
		end > p.size {
		return end, nil
	}
	w := &window{file: file, size: p.size, buffer: make([]byte, windowBytes)}
	for i := range p.sections.count {
		entry, err := w.read(p.sections.at+i*p.sections.each, p.elf.sectionBytes())
		if err != nil {
			return 0, err
		}
		kind, offset, length := p.elf.section(entry)
		if kind != sectionNull && kind != sectionNoBits {
			end = max(end, plus(offset, length))
		}
	}
	return end, nil
}

// arch names a machine. The numbers are e_machine of the System V ABI. Machines that Go has no port for are here if
// Linux has or had one.
func (l elfLayout) arch(machine uint16) string {
	little := l.order == binary.LittleEndian
	switch machine {
	case 2:
		return "sparc"
	case 3:
		return "386"
	case 4:
		return "68k"
	case 8:
		return l.mips(little)
	case 15:
		return "parisc"
	case 18:
		return "sparc32plus"
	case 20:
		return "ppc"
	case 21:
		if little {
			return "ppc64le"
		}
		return "ppc64"
	case 22:
		return "s390x"
	case 40:
		return "arm"
	case 42:
		return "sh"
	case 43:
		return "sparcv9"
	case 50:
		return "ia_64"
	case 62:
		return "amd64"
	case 92:
		return "openrisc"
	case 93:
		return "arc_compact"
	case 94:
		return "xtensa"
	case 113:
		return "altera_nios2"
	case 164:
		return "qdsp6"
	case 183:
		return "arm64"
	case 189:
		return "microblaze"
	case 195:
		return "arc_compact2"
	case 243:
		return "riscv64"
	case 247:
		return "bpf"
	case 258:
		return "loong64"
	case 0x9026:
		return "alpha"
	}
	return unnamed(machine)
}

func (l elfLayout) mips(little bool) string {
	name := "mips"
	if l.wide {
		name = "mips64"
	}
	if little {
		name += "le"
	}
	return name
}
