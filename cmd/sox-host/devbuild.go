package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/sox-host/sox-host/host"
)

// builder makes the program of one plugin.
type builder struct {
	dir, name string
	command   []string  // with placeholders; empty means go build
	output    io.Writer // what the build says, as it says it
}

// build writes the program to out. What the build prints goes to output; the error is one line.
func (b builder) build(ctx context.Context, version, out string) error {
	// No revision is asked of git, which takes a tenth of a build: the version says which build it is.
	argv := []string{"go", "build", "-buildvcs=false", "-ldflags", "-X main.version=" + version, "-o", out, "."}
	if len(b.command) > 0 {
		fill := strings.NewReplacer("{out}", out, "{version}", version, "{name}", b.name)
		argv = nil
		for _, word := range b.command {
			argv = append(argv, fill.Replace(word))
		}
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = b.dir
	cmd.Env = append(os.Environ(), "SOX_DEV_OUT="+out, "SOX_DEV_VERSION="+version, "SOX_DEV_NAME="+b.name)
	cmd.Stdout, cmd.Stderr = b.output, b.output
	cmd.WaitDelay = time.Second // a child of the build may hold the pipe open
	if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return fmt.Errorf("not built: %s: %w", argv[0], err)
	}
	if info, err := os.Stat(out); err != nil || !info.Mode().IsRegular() {
		return fmt.Errorf("not built: %s succeeded and wrote no file to %s, which {out} and SOX_DEV_OUT name", argv[0], out)
	}
	return nil
}

// splitCommand splits a command line at spaces. Quotes of both kinds keep words together; there is nothing else to
// it, so that a path with a backslash or a dollar is what it looks like.
func splitCommand(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	inWord := false
	quote := rune(0)
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '"' || r == '\'':
			quote, inWord = r, true
		case r == ' ' || r == '\t' || r == '\n':
			if inWord {
				words = append(words, word.String())
				word.Reset()
				inWord = false
			}
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	switch {
	case quote != 0:
		return nil, fmt.Errorf("the quote %c is not closed", quote)
	case inWord:
		words = append(words, word.String())
	}
	if line != "" && len(words) == 0 {
		return nil, errors.New("it is empty")
	}
	return words, nil
}

// splitDevVersion takes a version apart that dev gave to a build, as in 1.2.4-dev.7. Others are not ok.
func splitDevVersion(v string) (base, number string, ok bool) {
	base, number, ok = strings.Cut(v, "-dev.")
	parts := append(strings.Split(base, "."), number)
	ok = ok && len(parts) == 4
	for _, part := range parts {
		ok = ok && part != "" && strings.Trim(part, "0123456789") == ""
	}
	return base, number, ok
}

func isDevVersion(v string) bool {
	_, _, ok := splitDevVersion(v)
	return ok
}

// devBase is the version whose prereleases dev's builds are: the patch after the highest version of the plugin, or that
// of builds which are above even this, as when a version was removed under them.
func devBase(p host.PluginInfo) (string, error) {
	var highest host.Version
	var builds []string
	for _, v := range append(fileVersions(p), p.Active.Version) {
		if base, _, ok := splitDevVersion(v.String()); ok {
			builds = append(builds, base)
		} else if v.Compare(highest) > 0 {
			highest = v
		}
	}
	base := "0.0.0"
	if !highest.IsZero() {
		core, _, _ := strings.Cut(highest.String(), "+")
		core, _, _ = strings.Cut(core, "-")
		dot := strings.LastIndexByte(core, '.')
		patch, err := strconv.ParseUint(core[dot+1:], 10, 63)
		if err != nil {
			return "", fmt.Errorf("no version comes after %s: %w", highest, err)
		}
		base = fmt.Sprintf("%s.%d", core[:dot], patch+1)
	}
	for _, build := range builds {
		if isAbove(build, base) {
			base = build
		}
	}
	return base, nil
}

func fileVersions(p host.PluginInfo) (versions []host.Version) {
	for _, f := range p.Files {
		versions = append(versions, f.Version)
	}
	return versions
}

func isAbove(a, b string) bool {
	va, errA := host.ParseVersion(a)
	vb, errB := host.ParseVersion(b)
	return errA == nil && errB == nil && va.Compare(vb) > 0
}

// devNames hands out versions for builds: prereleases of the patch that would come next. They are above every version
// of the plugin, so that no host takes another one for newer, and below the release that will be made of them.
type devNames struct {
	last uint64 // the number given last; it only grows, whatever the base
}

// next returns a version that was not handed out before, and its base.
func (n *devNames) next(p host.PluginInfo) (base, version string, err error) {
	if base, err = devBase(p); err != nil {
		return "", "", err
	}
	for _, v := range append(fileVersions(p), p.Active.Version, p.Previous.Version) {
		if its, number, ok := splitDevVersion(v.String()); ok && its == base {
			if i, err := strconv.ParseUint(number, 10, 63); err == nil {
				n.last = max(n.last, i)
			}
		}
	}
	n.last++
	return base, fmt.Sprintf("%s-dev.%d", base, n.last), nil
}
