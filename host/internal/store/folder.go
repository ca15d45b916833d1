package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

const (
	// settleFor is how long a file must be unchanged before it is taken as whole.
	// Copies write at least every few milliseconds; half a second covers a slow
	// disk and is not felt after a build.
	settleFor = 500 * time.Millisecond
	// maxEntries of a plugins folder. Hundreds are normal when old versions pile
	// up; beyond this it is somebody's download folder.
	maxEntries = 10_000
	// maxSmallFileBytes for settings, manifests and sidecars. 1 MiB; real ones are
	// a few hundred bytes.
	maxSmallFileBytes = 1 << 20
)

// Options for ScanWith. The zero value is what Scan uses.
type Options struct {
	Now       time.Time     // zero = the clock's
	SettleFor time.Duration // 0 = 500 ms, negative = nothing settles
}

// Listing is the plugins folder at one moment. It shares nothing with the folder
// or with other listings.
type Listing struct {
	Dir   string `json:"dir"`
	Files []File `json:"files"` // every entry, sorted by entry name
}

// Scan looks at every entry of a plugins folder without changing anything. The
// folder may be a link; a folder that cannot be trusted is a *FolderError. One
// bad entry never hides another.
func Scan(dir string) (Listing, error) { return ScanWith(dir, Options{}) }

// ScanWith is Scan with another clock or settling time.
func ScanWith(dir string, o Options) (Listing, error) {
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	if o.SettleFor == 0 {
		o.SettleFor = settleFor
	}
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return Listing{}, fmt.Errorf("plugins folder %q: %w", dir, err)
	}
	root, err := openFolder(absolute, true)
	if err != nil {
		return Listing{}, err
	}
	defer root.Close()
	entries, err := readEntries(root, absolute, maxEntries)
	if err != nil {
		return Listing{}, err
	}
	l := Listing{Dir: absolute}
	for _, entry := range entries {
		l.Files = append(l.Files, judgeEntry(root, absolute, entry, o))
	}
	markAmbiguous(l.Files)
	markNotShareable(l.Files)
	return l, nil
}

// Names lists a plugins folder by the names of its entries alone, sorted, without
// looking at one of them: what a host that starts goes by until it has the time
// for Scan. A Verdict is given where the name decides, else it is "".
func Names(dir string) (Listing, error) {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return Listing{}, fmt.Errorf("plugins folder %q: %w", dir, err)
	}
	folder, err := openDirectory(absolute, true)
	if err != nil {
		return Listing{}, folderOpenError(absolute, err)
	}
	defer folder.Close()
	info, err := folder.Stat()
	if err != nil {
		return Listing{}, folderOpenError(absolute, err)
	}
	if err := judgeFolder(absolute, info); err != nil {
		return Listing{}, err
	}
	entries, err := readNames(folder, absolute, maxEntries)
	if err != nil {
		return Listing{}, err
	}
	l := Listing{Dir: absolute, Files: make([]File, len(entries))}
	for i, entry := range entries {
		l.Files[i] = classify(entry)
		l.Files[i].Path = filepath.Join(absolute, entry)
	}
	return l, nil
}

// ScanSettled scans until no file is settling, so that "build, then upgrade" in
// one line works. It waits at most until ctx ends and then returns the last
// listing with ctx's error.
func ScanSettled(ctx context.Context, dir string) (Listing, error) {
	for {
		l, err := Scan(dir)
		if err != nil {
			return l, err
		}
		var wait time.Duration
		for _, f := range l.Files {
			if f.Verdict == Settling {
				wait = max(wait, time.Until(f.ModTime.Add(settleFor)), time.Millisecond)
			}
		}
		if wait == 0 {
			return l, nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return l, context.Cause(ctx)
		case <-timer.C:
		}
	}
}

func readEntries(root *os.Root, dir string, limit int) ([]string, error) {
	folder, err := root.Open(".")
	if err != nil {
		return nil, folderOpenError(dir, err)
	}
	defer folder.Close()
	return readNames(folder, dir, limit)
}

func readNames(folder *os.File, dir string, limit int) ([]string, error) {
	names, err := folder.Readdirnames(limit + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, folderOpenError(dir, err)
	}
	if len(names) > limit {
		return nil, &FolderError{Reason: FolderTooLarge, Path: dir, UID: -1, Fix: "use a folder for plugins alone"}
	}
	slices.Sort(names)
	return names, nil
}

// judgeEntry gives one entry its verdict.
func judgeEntry(root *os.Root, dir, entry string, o Options) File {
	f := classify(entry)
	f.Path = filepath.Join(dir, entry)
	info, err := root.Lstat(entry)
	if err != nil {
		f.Verdict, f.Reason = Unreadable, fmt.Sprintf("cannot look at it: %v", cause(err))
		return f
	}
	f.Size, f.ModTime = info.Size(), info.ModTime()
	if f.Verdict == Ignored && info.Mode().IsRegular() && info.Mode()&0o111 != 0 && f.Reason == unnamed {
		f.Verdict = BadName
		f.Reason = fmt.Sprintf("a program that is not named NAME_vX.Y.Z: rename it to %s", suggestName(entry))
	}
	switch f.Verdict {
	case "", SettingsFile, Sidecar:
	default:
		return f
	}
	if f.Foreign() {
		f.Verdict = WrongArch
		f.Reason = fmt.Sprintf("for %s/%s; this system is %s/%s", f.OS, f.Arch, runtime.GOOS, runtime.GOARCH)
		return f
	}
	file, info, err := openEntry(root, dir, entry)
	if err != nil {
		f.setError(err)
		return f
	}
	defer file.Close()
	f.Size, f.ModTime = info.Size(), info.ModTime()
	if err := f.judgeContent(file, info, o); err != nil {
		f.setError(err)
	}
	return f
}

func (f *File) setError(err error) {
	f.Verdict, f.Reason = Unreadable, err.Error()
	var refused *entryError
	if errors.As(err, &refused) {
		f.Verdict = refused.verdict
	}
}

// judgeContent looks inside an opened entry. A verdict that more bytes could
// change is not given while the file is settling.
func (f *File) judgeContent(file *os.File, info fs.FileInfo, o Options) error {
	if f.Verdict == Sidecar {
		_, err := ReadDigest(file, strings.TrimSuffix(filepath.Base(f.Path), sidecarSuffix))
		return err
	}
	if age := o.Now.Sub(info.ModTime()); age >= 0 && age < o.SettleFor {
		return refuse(Settling, "changed %d ms ago, perhaps still being written: try again in a moment", age.Milliseconds())
	}
	if f.Verdict == SettingsFile {
		settings, err := decodeSettings(file)
		f.shared = settings.Lifetime == Shared
		return err
	}
	if info.Size() == 0 {
		return refuse(Empty, "it has no bytes: copy it again")
	}
	if f.Kind == Manifest {
		if err := f.judgeManifest(file); err != nil {
			return err
		}
	} else if err := judgeProgram(file, info, f.Path); err != nil {
		return err
	}
	f.Verdict = Ready
	return nil
}

// suggestName turns what people call their programs into a name that works.
func suggestName(entry string) string {
	if plain := plainEntry(entry); plain != "" {
		return plain
	}
	stem := PlainName(strings.TrimSuffix(entry, filepath.Ext(entry)))
	version := "0.1.0"
	if i := strings.LastIndexAny(entry, "-_@"); i > 0 {
		if v, err := ParseVersion(strings.TrimPrefix(entry[i+1:], "V")); err == nil {
			stem, version = PlainName(entry[:i]), v.String()
		}
	}
	return cmp.Or(stem, "NAME") + "_v" + version
}

// markAmbiguous finds files that would be the same choice with different bytes:
// one plugin, one precedence, one class (named for this system, or for any).
func markAmbiguous(files []File) {
	for i := range files {
		for j := range i {
			a, b := &files[j], &files[i]
			if !rivals(*a, *b) {
				continue
			}
			if same, err := sameBytes(*a, *b); err == nil && same {
				continue
			}
			for _, pair := range [][2]*File{{a, b}, {b, a}} {
				pair[0].Verdict = Ambiguous
				pair[0].Reason = fmt.Sprintf("%s is the same version with different bytes: keep one of them", filepath.Base(pair[1].Path))
			}
		}
	}
}

// markNotShareable finds manifests whose settings ask for a shared process. A server that speaks over its stdin and
// stdout has one session, and so one host.
func markNotShareable(files []File) {
	for _, settings := range files {
		if !settings.shared {
			continue
		}
		for i := range files {
			if f := &files[i]; f.Name == settings.Name && f.Kind == Manifest && f.Verdict == Ready {
				f.Verdict = NotShareable
				f.Reason = fmt.Sprintf(`%s asks for "lifetime": "shared", and a process of a server that runs from a manifest serves one session: take "lifetime" out`, filepath.Base(settings.Path))
			}
		}
	}
}

func rivals(a, b File) bool {
	usable := func(f File) bool { return f.Verdict == Ready || f.Verdict == Ambiguous }
	return usable(a) && usable(b) && a.Name == b.Name && a.Native() == b.Native() && a.Version.Compare(b.Version) == 0
}

func sameBytes(a, b File) (bool, error) {
	if a.Size != b.Size || a.Kind != b.Kind {
		return false, nil
	}
	first, err := hashEntry(context.Background(), a)
	if err != nil {
		return false, err
	}
	second, err := hashEntry(context.Background(), b)
	return first == second, err
}

// Of returns the plugin files of one name with every verdict, as Choose wants
// them: Choose must see an ambiguous or broken newest version to name it.
func (l Listing) Of(name string) []File {
	var files []File
	for _, f := range l.Files {
		if f.Name == name && f.Kind != NoKind && !f.Version.IsZero() {
			files = append(files, f)
		}
	}
	slices.SortStableFunc(files, preferred)
	return files
}

// Candidates returns the ready files of one name, best first.
func (l Listing) Candidates(name string) []File {
	return slices.DeleteFunc(l.Of(name), func(f File) bool { return f.Verdict != Ready })
}

// preferred orders the newest version first, then files for this system, then
// binaries; build metadata and paths only make the order definite.
func preferred(a, b File) int {
	rank := func(f File) int {
		switch {
		case f.Native():
			return 0
		case f.Foreign():
			return 2
		}
		return 1
	}
	return cmp.Or(
		b.Version.Compare(a.Version),
		cmp.Compare(rank(a), rank(b)),
		cmp.Compare(a.Kind, b.Kind),
		cmp.Compare(a.Version.Build(), b.Version.Build()),
		cmp.Compare(a.Path, b.Path),
	)
}
