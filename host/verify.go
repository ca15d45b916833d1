package host

import (
	"context"
	"errors"
	"slices"

	"github.com/sox-host/sox-host/host/internal/store"
)

// Check is one file that was read and compared.
type Check struct {
	Plugin  string `json:"plugin"`
	Version string `json:"version,omitempty"`
	What    string `json:"what"` // file, active, previous, pinned, sox-remote
	SHA256  string `json:"sha256,omitempty"`
	Path    string `json:"path,omitempty"`
	OK      bool   `json:"ok"`
	Error   string `json:"error,omitempty"`
}

// VerifyReport is the result of Verify.
type VerifyReport struct {
	Exit   Exit    `json:"exit"`
	Checks []Check `json:"checks"`
}

// Verify reads every byte that could run: the files of the plugins folder, against their sidecars, and the staged
// builds that are active, previous or pinned, against their names. Of a plugin behind a url it also says whether
// sox-remote is there, which runs for it. It changes nothing. names limits it to some
// plugins. Exit is ExitVerify when a check failed, ExitNotFound when a name is unknown.
func Verify(ctx context.Context, home, pluginsDir string, names ...string) (VerifyReport, error) {
	report := VerifyReport{Checks: []Check{}}
	inventory, err := List(home, pluginsDir)
	if err != nil {
		return report, err
	}
	h, err := store.OpenHome(home)
	if err != nil {
		return report, err
	}
	if len(names) == 0 {
		for _, p := range inventory.Plugins {
			names = append(names, p.Plugin)
		}
	}
	for _, name := range names {
		i := slices.IndexFunc(inventory.Plugins, func(p PluginInfo) bool { return p.Plugin == name })
		info := PluginInfo{Plugin: name}
		if i >= 0 {
			info = inventory.Plugins[i]
		} else if p, err := openPlugin(home, pluginsDir, name); err != nil {
			return report, err
		} else { // its files are gone, its builds are not
			info.Active, info.Previous, info.Pin = p.state.Active, p.state.Previous, p.state.Pin
		}
		report.Checks = append(report.Checks, verifyPlugin(ctx, h, info)...)
		if err := context.Cause(ctx); err != nil {
			return report, err
		}
	}
	// Sidecars that hold no digest would be passed over in silence otherwise.
	for _, f := range inventory.Others {
		if f.Verdict == store.BadDigest {
			report.Checks = append(report.Checks, Check{What: "sidecar", Path: f.Path, Error: f.Reason})
		}
	}
	if slices.ContainsFunc(report.Checks, func(c Check) bool { return !c.OK }) {
		report.Exit = ExitVerify
	}
	return report, nil
}

func verifyPlugin(ctx context.Context, h *store.Home, info PluginInfo) []Check {
	var checks []Check
	remote := false // one of its builds is a url
	for _, f := range info.Files {
		remote = remote || f.URL != ""
		c := Check{Plugin: info.Plugin, Version: f.Version.String(), What: "file", Path: f.Path}
		switch f.Verdict {
		case store.Ready:
		case store.NotShareable: // its bytes are as they should be, and it cannot run all the same
			c.Error = f.Reason
			checks = append(checks, c)
			continue
		default:
			continue // it cannot run; list says why
		}
		b, err := h.Inspect(ctx, f)
		checks = append(checks, c.judged(b, err))
	}
	refs := []struct {
		what string
		ref  store.Ref
	}{{"active", info.Active}, {"previous", info.Previous}}
	if info.Pin != nil && info.Pin.SHA256 != "" {
		refs = append(refs, struct {
			what string
			ref  store.Ref
		}{"pinned", store.Ref{Version: info.Pin.Version, SHA256: info.Pin.SHA256}})
	}
	for _, r := range refs {
		if r.ref.IsZero() {
			continue
		}
		c := Check{Plugin: info.Plugin, Version: r.ref.Version.String(), What: r.what, SHA256: r.ref.SHA256}
		b, err := h.Lookup(info.Plugin, r.ref)
		if r.what == "pinned" && errors.Is(err, store.ErrNotStaged) {
			continue // pinned and never run: its file is checked above
		}
		remote = remote || b.Manifest != nil && b.Manifest.URL != ""
		checks = append(checks, c.judged(b, err))
	}
	if remote {
		c := Check{Plugin: info.Plugin, What: store.RemoteCommand}
		path, err := store.FindRemote()
		if c.Path, c.OK = path, err == nil; err != nil {
			c.Error = err.Error()
		}
		checks = append(checks, c)
	}
	return checks
}

func (c Check) judged(b store.Build, err error) Check {
	if err != nil {
		c.Error = err.Error()
		return c
	}
	c.OK, c.SHA256 = true, b.SHA256
	if c.Path == "" {
		c.Path = b.Path
	}
	return c
}
