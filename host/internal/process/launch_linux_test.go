package process

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestStartFailuresOfELF(t *testing.T) {
	dir := t.TempDir()
	program, err := os.ReadFile(self())
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, content []byte) Spec {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o700); err != nil {
			t.Fatal(err)
		}
		return Spec{Plugin: "broken", Path: path}
	}
	foreign := slices.Clone(program[:4096])
	machine, name := elf.EM_AARCH64, "arm64"
	if runtime.GOARCH == name {
		machine, name = elf.EM_X86_64, "amd64"
	}
	binary.LittleEndian.PutUint16(foreign[18:], uint16(machine))
	// Long enough for its segments, so that only the machine is wrong.
	foreign = append(foreign, make([]byte, len(program))...)
	macho := make([]byte, 4096)
	binary.LittleEndian.PutUint32(macho, 0xfeedfacf)
	binary.LittleEndian.PutUint32(macho[4:], 0x0100000c) // arm64
	binary.LittleEndian.PutUint32(macho[12:], 2)

	cases := []struct {
		name   string
		spec   Spec
		kind   StartKind
		detail string
	}{
		{"three_bytes", write("three", program[:3]), KindTruncated, "only 3 bytes"},
		{"part_of_the_header", write("header", program[:40]), KindTruncated, "only 40 bytes"},
		{"a_hundredth", write("hundredth", program[:len(program)/100]), KindTruncated, ""},
		{"a_quarter", write("quarter", program[:len(program)/4]), KindTruncated, ""},
		{"another_machine", write("foreign", foreign), KindWrongArch, "built for " + name + ", this machine is linux/" + runtime.GOARCH},
		{"macos", write("macho", macho), KindWrongArch, "built for darwin/arm64"},
	}
	inModes(t, func(t *testing.T, s *Spawner) {
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) { checkStartError(t, s, c.spec, c.kind, c.detail) })
		}
		t.Run("another_c_library", func(t *testing.T) {
			const loader = "/lib/ld-musl-none.so.1"
			checkStartError(t, s, write("musl", withLoader(t, program, loader)), KindInterpreter, loader)
		})
		t.Run("without_the_debug_information_it_runs", func(t *testing.T) {
			head, err := readProgram(self(), int64(len(program)))
			if err != nil || head.Segments == 0 {
				t.Fatalf("the header of the test binary was not understood: %v", err)
			}
			spec := write("almost", program[:head.Segments])
			spec.Args, spec.Env = exitChild.argv("0"), []string{raceEnv}
			p, err := s.Start(within(t), spec)
			if err != nil {
				t.Fatal(err)
			}
			p.Stop(patient)
		})
		t.Run("busy", func(t *testing.T) {
			spec := write("busy", program)
			file, err := os.OpenFile(spec.Path, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			checkStartError(t, s, spec, KindBusy, "writing")
		})
	})
}

// withLoader makes a small dynamic program for the machine of another one that asks for the named loader.
func withLoader(t *testing.T, program []byte, loader string) []byte {
	t.Helper()
	if program[elf.EI_CLASS] != byte(elf.ELFCLASS64) || program[elf.EI_DATA] != byte(elf.ELFDATA2LSB) {
		t.Skipf("this case has the headers of a program of 64 bits, little endian, which %s is not", runtime.GOARCH)
	}
	const header, entry = 64, 56
	text := append([]byte(loader), 0)
	out := make([]byte, header+2*entry)
	copy(out, elf.ELFMAG)
	out[elf.EI_CLASS], out[elf.EI_DATA], out[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), 1
	le := binary.LittleEndian
	le.PutUint16(out[16:], uint16(elf.ET_EXEC))
	copy(out[18:20], program[18:20]) // the machine
	le.PutUint32(out[20:], 1)
	le.PutUint64(out[24:], 0x400000)
	le.PutUint64(out[32:], header)
	le.PutUint16(out[52:], header)
	le.PutUint16(out[54:], entry)
	le.PutUint16(out[56:], 2)
	size := uint64(len(out) + len(text))
	for i, kind := range []elf.ProgType{elf.PT_INTERP, elf.PT_LOAD} {
		p := out[header+i*entry:]
		le.PutUint32(p, uint32(kind))
		le.PutUint32(p[4:], uint32(elf.PF_R|elf.PF_X))
		from, length := uint64(len(out)), uint64(len(text))
		if kind == elf.PT_LOAD {
			from, length = 0, size
		}
		le.PutUint64(p[8:], from)
		le.PutUint64(p[16:], 0x400000+from)
		le.PutUint64(p[32:], length)
		le.PutUint64(p[40:], length)
		le.PutUint64(p[48:], 0x1000)
	}
	return append(out, text...)
}

func TestStartOnNoexecMount(t *testing.T) {
	// /proc is mounted noexec nearly everywhere; a tmpfs of the test's own
	// needs privileges.
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOEXEC, "size=64k"); errors.Is(err, fs.ErrPermission) {
		t.Skipf("this user may not mount a noexec file system: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	path := filepath.Join(dir, "script")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	inModes(t, func(t *testing.T, s *Spawner) {
		checkStartError(t, s, Spec{Plugin: "broken", Path: path}, KindNoexec, "noexec")
	})
}

// statusOf returns the lines of a plugin's /proc/self/status. The plugin is cat:
// a Go program would change its own signals first.
func statusOf(t *testing.T, s *Spawner) map[string]string {
	t.Helper()
	log := newLineLog()
	p, err := s.Start(within(t), Spec{Plugin: "test", Path: "/bin/cat", Args: []string{"/proc/self/status"}, Output: log.add})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop(patient)
	await(t, "exit", p.Exited())
	fields := make(map[string]string)
	for _, line := range log.lines {
		name, value, _ := strings.Cut(line, ":")
		fields[name] = strings.TrimSpace(value)
	}
	return fields
}

func TestPluginsDescriptorsBlock(t *testing.T) {
	// A program that is not written for it fails on a descriptor that is set
	// to non-blocking.
	inModes(t, func(t *testing.T, s *Spawner) {
		// Not a Go program, which would set descriptor 3 as it likes it.
		log := newLineLog()
		p, err := s.Start(within(t), Spec{Plugin: "test", Path: "/bin/sh", Args: []string{"-c", "echo ready; read x <&3"}, Output: log.add})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Stop(DefaultLadder)
		log.until(t, "ready")
		for fd := range 4 {
			info, err := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%d", p.Pid(), fd))
			if err != nil {
				t.Fatal(err)
			}
			_, rest, _ := strings.Cut(string(info), "flags:")
			flags, err := strconv.ParseUint(strings.Fields(rest)[0], 8, 64)
			if err != nil || flags&unix.O_NONBLOCK != 0 {
				t.Errorf("descriptor %d has flags %o, %v", fd, flags, err)
			}
		}
	})
}

// signalsChild starts a plugin as a host that was itself started with signals
// ignored and blocked.
var signalsChild = registerChild("signals", func(args []string) {
	options := Options{}
	if args[0] == "guard" {
		options.Guard = guardArgv()
	}
	s := NewSpawner(options)
	defer s.Close()
	p, err := s.Start(bounded(), Spec{Plugin: "test", Path: "/bin/cat", Args: []string{"/proc/self/status"},
		Output: func(l Line) { fmt.Printf("%s\n", l.Text) }})
	if err != nil {
		fmt.Println(err)
		return
	}
	<-p.Exited()
	p.Stop(patient)
})

func TestPluginHasDefaultSignals(t *testing.T) {
	inModes(t, func(t *testing.T, s *Spawner) {
		status := statusOf(t, s)
		checkSignals(t, status)
	})
	// The same below a host whose own parent meddled with them.
	for _, mode := range modes {
		t.Run("meddled_"+mode, func(t *testing.T) {
			out := runMeddled(t, signalsChild.argv(mode))
			fields := make(map[string]string)
			for line := range strings.Lines(out) {
				name, value, _ := strings.Cut(line, ":")
				fields[name] = strings.TrimSpace(value)
			}
			checkSignals(t, fields)
		})
	}
}

// reservedSignals are 32 and 33, which the C library keeps for itself: some shells and tools leave them ignored
// in their children, no program can ask for them, and Go does not touch them.
const reservedSignals = 1<<31 | 1<<32

func checkSignals(t *testing.T, status map[string]string) {
	t.Helper()
	for _, name := range []string{"SigIgn", "SigBlk"} {
		set, err := strconv.ParseUint(status[name], 16, 64)
		if err != nil || set&^reservedSignals != 0 {
			t.Errorf("%s is %q", name, status[name])
		}
	}
}

// runMeddled runs the test binary with SIGHUP, SIGINT, SIGPIPE and SIGTERM
// ignored and SIGTERM, SIGCHLD and SIGUSR1 blocked.
func runMeddled(t *testing.T, argv []string) string {
	t.Helper()
	result := make(chan string)
	go func() {
		// Not unlocked: the thread with the odd mask ends here.
		runtime.LockOSThread()
		var mask unix.Sigset_t
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGCHLD, syscall.SIGUSR1} {
			mask.Val[0] |= 1 << (sig - 1)
		}
		if err := unix.PthreadSigmask(unix.SIG_BLOCK, &mask, nil); err != nil {
			result <- err.Error()
			return
		}
		// The shell sets the signals to ignored and becomes the host.
		script := `trap "" HUP INT PIPE TERM; exec "$0" "$@"`
		cmd := exec.Command("/bin/sh", append([]string{"-c", script, self()}, argv...)...)
		cmd.Env = append(os.Environ(), raceEnv)
		out, err := cmd.CombinedOutput()
		if err != nil {
			out = fmt.Append(out, err)
		}
		result <- string(out)
	}()
	return await(t, "the meddled host", result)
}

// fdsChild is a host with leaked descriptors whose plugin lists its own.
var fdsChild = registerChild("fds", func(args []string) {
	if err := MarkInheritedCloexec(); err != nil {
		fmt.Println(err)
		return
	}
	options := Options{}
	if args[0] == "guard" {
		options.Guard = guardArgv()
	}
	s := NewSpawner(options)
	defer s.Close()
	p, err := s.Start(bounded(), Spec{Plugin: "test", Path: "/bin/ls", Args: []string{"/proc/self/fd"},
		Output: func(l Line) { fmt.Printf("%s\n", l.Text) }})
	if err != nil {
		fmt.Println(err)
		return
	}
	<-p.Exited()
	p.Stop(patient)
})

func TestPluginInheritsFourDescriptors(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			null, err := os.Open(os.DevNull)
			if err != nil {
				t.Fatal(err)
			}
			defer null.Close()
			cmd := exec.Command(self(), fdsChild.argv(mode)...)
			cmd.Env = append(os.Environ(), raceEnv)
			for range 20 {
				cmd.ExtraFiles = append(cmd.ExtraFiles, null)
			}
			out, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			// ls has one more, for the folder it lists.
			if got := strings.Fields(string(out)); !slices.Equal(got, []string{"0", "1", "2", "3", "4"}) {
				t.Errorf("descriptors %q", got)
			}
		})
	}
}
