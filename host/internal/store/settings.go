package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Lifetime says how long a backend lives.
type Lifetime string

// The lifetimes. The empty value means private.
const (
	Private Lifetime = "private" // one process for one host
	Shared  Lifetime = "shared"  // one detached process for every host of this user
)

// Settings is what NAME.json says about one plugin. The zero value is the
// defaults; a zero duration means the host's default for it.
type Settings struct {
	Env          map[string]string // added to the child's environment; "" stays ""
	EnvAllow     []string          // names of the host's variables to pass on; a trailing * is a prefix
	Args         []string          // passed to the child unchanged
	Exclusive    bool              // at most one process at a time
	Serial       bool              // at most one request at a time
	ReadOnly     bool              // writes are refused
	Lifetime     Lifetime
	IdleRetire   time.Duration // stop after this long without work; 0 = never
	StartTimeout time.Duration
	DrainTimeout time.Duration
	StopTimeout  time.Duration
	CallTimeout  time.Duration
	// HealthTimeout is how long a plugin with open calls may be silent before it is asked, and again before it is
	// killed; negative = for ever ("off").
	HealthTimeout time.Duration
	Tools         ToolSettings
	Required      bool       // no lists without it, and no start without a file of it
	Constraint    Constraint // which versions an upgrade may choose
	KeepWarm      bool       // keep the old process through probation
	Order         int        // position in merged lists, then by name
}

// ToolSettings filters and renames a plugin's tools. Names are the plugin's own.
type ToolSettings struct {
	Allow  []string          `json:"allow"` // empty = all
	Deny   []string          `json:"deny"`  // wins over Allow
	Rename map[string]string `json:"rename"`
}

// durationText is a duration as settings have it, such as "1.5s".
type durationText string

// settingsFile is the file's shape.
type settingsFile struct {
	Env          map[string]string `json:"env"`
	EnvAllow     []string          `json:"env_allow"`
	Args         []string          `json:"args"`
	Exclusive    bool              `json:"exclusive"`
	Serial       bool              `json:"serial"`
	ReadOnly     bool              `json:"read_only"`
	Lifetime     Lifetime          `json:"lifetime"`
	IdleRetire   durationText      `json:"idle_retire"`
	StartTimeout durationText      `json:"start_timeout"`
	DrainTimeout durationText      `json:"drain_timeout"`
	StopTimeout  durationText      `json:"stop_timeout"`
	CallTimeout  durationText      `json:"call_timeout"`
	Health       durationText      `json:"health_timeout"`
	Tools        ToolSettings      `json:"tools"`
	Required     bool              `json:"required"`
	Constraint   string            `json:"constraint"`
	KeepWarm     bool              `json:"keep_warm"`
	Order        int               `json:"order"`
}

// LoadSettings reads NAME.json from the plugins folder, with the trust checks of
// Scan. A missing file gives the zero Settings.
func LoadSettings(dir, name string) (Settings, error) {
	if !ValidName(name) {
		return Settings{}, fmt.Errorf("settings for %q: %s", clip(name), nameRule)
	}
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return Settings{}, fmt.Errorf("settings for %q: %w", name, err)
	}
	root, err := openFolder(absolute, true)
	if errors.Is(err, fs.ErrNotExist) {
		return Settings{}, nil
	}
	if err != nil {
		return Settings{}, err
	}
	defer root.Close()
	entry := name + jsonSuffix
	if _, err := root.Lstat(entry); errors.Is(err, fs.ErrNotExist) {
		return Settings{}, nil
	}
	file, _, err := openEntry(root, absolute, entry)
	if err != nil {
		return Settings{}, fmt.Errorf("settings %s: %w", filepath.Join(absolute, entry), err)
	}
	defer file.Close()
	settings, err := decodeSettings(file)
	if err != nil {
		return Settings{}, fmt.Errorf("settings %s: %w", filepath.Join(absolute, entry), err)
	}
	return settings, nil
}

// decodeSettings reads settings strictly; its errors are *entryError.
func decodeSettings(r io.Reader) (Settings, error) {
	var file settingsFile
	if err := decodeStrict(r, &file); err != nil {
		return Settings{}, refuse(BadSettings, "%v", err)
	}
	s, err := file.settings()
	if err != nil {
		return Settings{}, refuse(BadSettings, "%v", err)
	}
	return s, nil
}

func (f settingsFile) settings() (Settings, error) {
	s := Settings{
		Env: f.Env, EnvAllow: f.EnvAllow, Args: f.Args,
		Exclusive: f.Exclusive, Serial: f.Serial, ReadOnly: f.ReadOnly,
		Lifetime: f.Lifetime, Tools: f.Tools, Required: f.Required,
		KeepWarm: f.KeepWarm, Order: f.Order,
	}
	if s.Lifetime == "" {
		s.Lifetime = Private
	}
	if s.Lifetime != Private && s.Lifetime != Shared {
		return Settings{}, fmt.Errorf(`"lifetime" is %q: write "private" or "shared"`, clip(string(s.Lifetime)))
	}
	if err := s.checkShared(); err != nil {
		return Settings{}, err
	}
	for _, duration := range []struct {
		member string
		text   durationText
		to     *time.Duration
	}{
		{"idle_retire", f.IdleRetire, &s.IdleRetire},
		{"start_timeout", f.StartTimeout, &s.StartTimeout},
		{"drain_timeout", f.DrainTimeout, &s.DrainTimeout},
		{"stop_timeout", f.StopTimeout, &s.StopTimeout},
		{"call_timeout", f.CallTimeout, &s.CallTimeout},
		{"health_timeout", f.Health, &s.HealthTimeout},
	} {
		if duration.text == "" {
			continue
		}
		if duration.text == "off" && duration.to == &s.HealthTimeout {
			s.HealthTimeout = -1
			continue
		}
		d, err := time.ParseDuration(string(duration.text))
		if err != nil || d <= 0 {
			return Settings{}, fmt.Errorf(`"%s" is %q: write a duration above zero such as "30s" or "5m"`, duration.member, clip(string(duration.text)))
		}
		*duration.to = d
	}
	if f.Constraint != "" {
		var err error
		if s.Constraint, err = ParseConstraint(f.Constraint); err != nil {
			return Settings{}, err
		}
	}
	if err := checkEnvironment(s.Env, s.EnvAllow); err != nil {
		return Settings{}, err
	}
	if err := checkArgs(s.Args); err != nil {
		return Settings{}, err
	}
	return s, s.Tools.check()
}

// checkShared refuses what no host can see to when others use the same process.
func (s Settings) checkShared() error {
	switch {
	case s.Lifetime != Shared:
	case s.Exclusive:
		return errors.New(`"exclusive" and "lifetime": "shared" exclude each other: an upgrade would have to stop a process that other hosts use. Take one of them out`)
	case s.Serial:
		return errors.New(`"serial" and "lifetime": "shared" exclude each other: each host would count its own calls only. Take one of them out, or let the plugin itself take one call at a time`)
	}
	return nil
}

// validToolName says whether every client accepts s as a tool's name:
// ^[A-Za-z0-9_-]{1,64}$.
func validToolName(s string) bool {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
	return s != "" && len(s) <= 64 && strings.Trim(s, letters) == ""
}

func (t ToolSettings) check() error {
	for from, to := range t.Rename {
		if !validToolName(to) {
			return fmt.Errorf(`"tools.rename" turns %q into %q: use 1 to 64 characters A-Z, a-z, 0-9, _ and -`, clip(from), clip(to))
		}
	}
	return nil
}

// checkEnvironment refuses what the kernel would cut or misread.
func checkEnvironment(env map[string]string, allow []string) error {
	for name, value := range env {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			return fmt.Errorf(`"env" has the name %q: a name is not empty and has no = in it`, clip(name))
		}
		if strings.Contains(value, "\x00") {
			return fmt.Errorf(`"env" member %q has a NUL character in its value`, clip(name))
		}
	}
	for _, name := range allow {
		if strings.Trim(name, "*") == "" || strings.ContainsAny(name, "=\x00") {
			return fmt.Errorf(`"env_allow" has the entry %q: write a variable's name, or a prefix with * such as "AWS_*"`, clip(name))
		}
	}
	return nil
}

func checkArgs(args []string) error {
	if i := slices.IndexFunc(args, func(arg string) bool { return strings.Contains(arg, "\x00") }); i >= 0 {
		return fmt.Errorf(`"args" entry %d has a NUL character in it`, i)
	}
	return nil
}
