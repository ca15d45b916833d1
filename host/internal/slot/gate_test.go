package slot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sox-host/sox-host/host/internal/store"
)

func TestGates(t *testing.T) {
	t.Run("pinned", func(t *testing.T) {
		bubble(t, []string{"1.0.0"}, func(e *env) {
			e.open(Settings{})
			e.up(e.session())
			e.drop("1.1.0", "")
			if _, err := e.state.Update(context.Background(), name, func(p *store.PluginState) error {
				p.Pin = &store.Pin{Version: p.Active.Version}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			report := e.upgrade(UpgradeRequest{To: "1.1.0"})
			want(t, "exit", report.Exit, ExitRefused)
			want(t, "pinned to what it is", e.upgrade(UpgradeRequest{}).Result, ResultUnchanged)
		})
	})
	t.Run("breaking_allowed", func(t *testing.T) {
		bubble(t, []string{"1.0.0"}, func(e *env) {
			e.open(Settings{})
			s := e.session()
			e.up(s)
			e.drop("1.1.0", "")
			e.set("1.1.0", func(p *script) { p.tools = defaultTools[:1] })
			report := e.upgrade(UpgradeRequest{AllowBreaking: true, SettleMS: quick})
			want(t, "result", report.Result, ResultUpgraded)
			want(t, "schema", report.Schema, "+0 ~0 -1")
			want(t, "tools", len(e.slot.Catalog(s.Profile()).Tools), 1)
		})
	})
	t.Run("downgrade_refused", func(t *testing.T) { // and rollback is named only where it goes there
		bubble(t, []string{"1.0.0"}, func(e *env) {
			e.open(Settings{})
			e.up(e.session())
			e.drop("0.9.0", "")
			refused := func() string {
				report := e.upgrade(UpgradeRequest{To: "0.9.0"})
				want(t, "exit of "+report.Error, report.Exit, ExitRefused)
				return report.Error
			}
			if text := refused(); !strings.Contains(text, "--allow-downgrade") || strings.Contains(text, "rollback") {
				t.Error(text)
			}
			e.upgrade(UpgradeRequest{To: "0.9.0", AllowDowngrade: true, SettleMS: quick})
			e.upgrade(UpgradeRequest{To: "1.0.0", SettleMS: quick})
			if text := refused(); !strings.Contains(text, "sox-host rollback notes") {
				t.Error(text)
			}
		})
	})
	t.Run("downgrade_allowed", func(t *testing.T) {
		bubble(t, []string{"1.0.0"}, func(e *env) {
			e.open(Settings{})
			e.up(e.session())
			e.drop("0.9.0", "")
			want(t, "result", e.upgrade(UpgradeRequest{}).Result, ResultUnchanged)
			report := e.upgrade(UpgradeRequest{To: "0.9.0", AllowDowngrade: true, SettleMS: quick})
			want(t, "result", report.Result, ResultUpgraded)
		})
	})
	t.Run("damaged_store", func(t *testing.T) {
		bubble(t, []string{"1.0.0"}, func(e *env) {
			e.open(Settings{})
			e.up(e.session())
			e.drop("1.1.0", "")
			e.upgrade(UpgradeRequest{SettleMS: quick})
			previous := e.load().Previous
			build, err := e.home.Lookup(name, previous)
			if err != nil {
				t.Fatal(err)
			}
			_ = os.Chmod(build.Path, 0o700)
			if err := os.WriteFile(build.Path, []byte("#!/bin/sh\nother bytes\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			report := e.upgrade(UpgradeRequest{Rollback: true})
			want(t, "exit of "+report.Error, report.Exit, ExitVerify)
		})
	})
	t.Run("another_process_holds_the_lock", func(t *testing.T) {
		bubble(t, []string{"1.0.0"}, func(e *env) {
			e.open(Settings{})
			e.up(e.session())
			unlock, err := e.state.Lock(context.Background(), name)
			if err != nil {
				t.Fatal(err)
			}
			defer unlock()
			report := e.upgrade(UpgradeRequest{Restart: true})
			want(t, "exit", report.Exit, ExitBusy)
			want(t, "step", report.FailedStep, StepLock)
		})
	})
	t.Run("a_start_is_under_way", func(t *testing.T) {
		bubble(t, []string{"1.0.0"}, func(e *env) {
			e.set("1.0.0", func(p *script) { p.bootDelay = 5 * time.Second })
			e.open(Settings{})
			r := e.call(e.session(), Once, "")
			synctest.Wait()
			report := e.upgrade(UpgradeRequest{TimeoutMS: 1000})
			want(t, "exit", report.Exit, ExitDeadline)
			want(t, "step", report.FailedStep, StepLock)
			want(t, "the call", r.by(), "1.0.0")
		})
	})
}

// hashTree is the content and the names of everything below the folders.
func hashTree(t *testing.T, dirs ...string) string {
	t.Helper()
	sum := sha256.New()
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			fmt.Fprintln(sum, path)
			if d.Type().IsRegular() {
				data, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				sum.Write(data)
			}
			return nil
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	return hex.EncodeToString(sum.Sum(nil))
}

func TestDryRun(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		t.Setenv("TMPDIR", e.dir)
		e.open(Settings{})
		before := hashTree(t, e.dir)
		report := e.upgrade(UpgradeRequest{DryRun: true})
		want(t, "a plugin never started", report.Result, ResultPlanned)
		want(t, "tree", hashTree(t, e.dir), before)

		s := e.session()
		e.up(s)
		want(t, "nothing newer", e.upgrade(UpgradeRequest{DryRun: true}).Result, ResultUnchanged)
		e.drop("1.1.0", "")
		before = hashTree(t, e.dir)
		report = e.upgrade(UpgradeRequest{DryRun: true})
		want(t, "result", report.Result, ResultPlanned)
		want(t, "to", report.To, "1.1.0")
		e.set("1.1.0", func(p *script) { p.tools = defaultTools[:1] })
		want(t, "refused like the real one", e.upgrade(UpgradeRequest{DryRun: true}).Exit, ExitRefused)
		e.set("1.1.0", func(p *script) { p.exitAtStart = true })
		report = e.upgrade(UpgradeRequest{DryRun: true})
		want(t, "fails like the real one", report.FailedStep, StepReady)
		want(t, "tree", hashTree(t, e.dir), before)
		want(t, "still", e.call(s, Once, "").by(), "1.0.0")
	})
}

// A dry run does not need more than the real run: a folder for temporary files that is not there is no reason to fail.
func TestDryRunWithoutTemporaryFolder(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		t.Setenv("TMPDIR", filepath.Join(e.dir, "nowhere"))
		e.open(Settings{})
		e.up(e.session())
		e.drop("1.1.0", "")
		before := hashTree(t, e.dir)
		report := e.upgrade(UpgradeRequest{DryRun: true})
		want(t, "result of "+report.Error, report.Result, ResultPlanned)
		want(t, "tree", hashTree(t, e.dir), before)
		want(t, "the real run", e.upgrade(UpgradeRequest{SettleMS: quick}).Result, ResultUpgraded)
	})
}

// Where the real run cannot stage its build, the dry run fails at the same step, in the same way.
func TestDryRunOfAStoreThatIsRefused(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		s := e.session()
		e.up(s)
		e.drop("1.1.0", "")
		folder := filepath.Join(e.dir, "home", "store")
		if err := os.Chmod(folder, 0o777); err != nil {
			t.Fatal(err)
		}
		before := hashTree(t, e.dir)
		dry := e.upgrade(UpgradeRequest{DryRun: true})
		want(t, "step", dry.FailedStep, StepStage)
		want(t, "tree", hashTree(t, e.dir), before)
		report := e.upgrade(UpgradeRequest{})
		want(t, "the real run's step", report.FailedStep, StepStage)
		want(t, "its reason", report.Error, dry.Error)
		want(t, "its exit code", report.Exit, dry.Exit)
		if err := os.Chmod(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		want(t, "mended", e.upgrade(UpgradeRequest{SettleMS: quick}).Result, ResultUpgraded)
	})
}
