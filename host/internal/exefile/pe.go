package exefile

import "encoding/binary"

const (
	peOffset    = 0x3c // where a program for DOS says where its Windows part begins
	peSignature = "PE\x00\x00"
)

// readPE reads the machine, the number after the signature. A program for DOS alone has none and is Cut.
func readPE(w *window) (Program, error) {
	p := Program{Kind: PE, Cut: true}
	if !w.has(peOffset, 4) {
		return p, nil
	}
	field, err := w.read(peOffset, 4)
	if err != nil {
		return p, err
	}
	at := uint64(binary.LittleEndian.Uint32(field))
	if !w.has(at, uint64(len(peSignature)+2)) {
		return p, nil
	}
	field, err = w.read(at, uint64(len(peSignature)+2))
	if err != nil || string(field[:len(peSignature)]) != peSignature {
		return p, err
	}
	p.Cut = false
	p.Arches = []string{peArch(binary.LittleEndian.Uint16(field[len(peSignature):]))}
	return p, nil
}

// peArch names a machine, IMAGE_FILE_MACHINE of the format's specification.
func peArch(machine uint16) string {
	switch machine {
	case 0x14c:
		return "386"
	case 0x1c4:
		return "arm"
	case 0x8664:
		return "amd64"
	case 0xaa64:
		return "arm64"
	}
	return unnamed(machine)
}
