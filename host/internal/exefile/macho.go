package exefile

import "encoding/binary"

// Thin files are little-endian, as on every Mac since 2006. In a universal file the header is big-endian, and older
// programs may be.
const (
	machoMagic32 = 0xfeedface
	machoMagic64 = 0xfeedfacf
	machoFat     = 0xcafebabe

	machoHeader32 = 28 // bytes
	machoHeader64 = 32

	fatHeader = 8  // bytes, before the first architecture
	fatArch   = 20 // bytes of one architecture

	// fatCount is the first number of architectures that no file has. Universal files share their magic number with
	// Java classes, which have a version above 40 in its place.
	fatCount = 20
)

func isMachO(head []byte) bool {
	if len(head) < fatHeader {
		return false
	}
	switch binary.LittleEndian.Uint32(head) {
	case machoMagic32, machoMagic64:
		return true
	}
	return binary.BigEndian.Uint32(head) == machoFat && binary.BigEndian.Uint32(head[4:]) < fatCount
}

func readMachO(w *window) (Program, error) {
	p := Program{Kind: MachO}
	if binary.BigEndian.Uint32(w.bytes) != machoFat {
		p.Arches = []string{machoArch(binary.LittleEndian.Uint32(w.bytes[4:]))}
		whole, err := wholeMachO(w, 0, w.size)
		p.Cut = !whole
		return p, err
	}
	count := int(binary.BigEndian.Uint32(w.bytes[4:]))
	table := w.bytes[fatHeader:min(len(w.bytes), fatHeader+count*fatArch)]
	p.Cut = count == 0 || len(table) < count*fatArch
	var images [fatCount]struct{ offset, length uint64 }
	for i := range len(table) / fatArch {
		entry := table[i*fatArch:]
		p.Arches = append(p.Arches, machoArch(binary.BigEndian.Uint32(entry)))
		images[i].offset = uint64(binary.BigEndian.Uint32(entry[8:]))
		images[i].length = uint64(binary.BigEndian.Uint32(entry[12:]))
	}
	for _, image := range images[:len(p.Arches)] {
		whole, err := wholeMachO(w, image.offset, image.length)
		if err != nil {
			return p, err
		}
		p.Cut = p.Cut || !whole
	}
	return p, nil
}

// wholeMachO reports whether the program of length bytes at offset at begins with a header, and has that and its load
// commands.
func wholeMachO(w *window, at, length uint64) (bool, error) {
	if length < machoHeader32 || !w.has(at, machoHeader32) {
		return false, nil
	}
	head, err := w.read(at, machoHeader32)
	if err != nil {
		return false, err
	}
	var order binary.ByteOrder = binary.LittleEndian
	if head[0] == machoMagic32>>24 {
		order = binary.BigEndian
	}
	header := uint64(machoHeader32)
	switch order.Uint32(head) {
	case machoMagic32:
	case machoMagic64:
		header = machoHeader64
	default:
		return false, nil
	}
	end := header + uint64(order.Uint32(head[20:])) // the bytes of its load commands
	return end <= length && w.has(at, end), nil
}

// machoArch names a CPU type of <mach/machine.h>; 1<<24 stands for 64 bits.
func machoArch(cpu uint32) string {
	const wide = 1 << 24
	switch cpu {
	case 7:
		return "386"
	case 7 | wide:
		return "amd64"
	case 12:
		return "arm"
	case 12 | wide:
		return "arm64"
	case 18:
		return "ppc"
	case 18 | wide:
		return "ppc64"
	}
	return unnamed(cpu)
}
