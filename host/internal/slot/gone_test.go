package slot

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sox-host/sox-host/host/internal/store"
)

// deleteFile takes a version out of the plugins folder.
func (e *env) deleteFile(version string) {
	e.t.Helper()
	if err := os.Remove(filepath.Join(e.plugins, name+"_v"+version)); err != nil {
		e.t.Fatal(err)
	}
}

// What has never come up can do so no more without a file.
func TestGoneOnceItCannotStart(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		launch := make(chan struct{})
		e.set("1.0.0", func(s *script) { s.silent, s.launchHold = true, launch })
		e.open(Settings{})
		e.slot.Want(e.session())
		synctest.Wait()
		if now, _ := e.slot.Gone(); now {
			t.Error("gone before its process is there")
		}
		close(launch)
		synctest.Wait()
		if now, _ := e.slot.Gone(); now {
			t.Error("gone while it starts")
		}
		e.deleteFile("1.0.0")
		time.Sleep(time.Minute) // virtual time
		synctest.Wait()
		if now, _ := e.slot.Gone(); !now {
			t.Errorf("not gone: %+v", e.slot.Status())
		}
	})
}

// A process, or its build in the store, is enough to go on.
func TestGoneIsNotWhatCanRun(t *testing.T) {
	bubble(t, []string{"1.0.0"}, func(e *env) {
		e.open(Settings{})
		p := e.up(e.session())
		e.deleteFile("1.0.0")
		if now, _ := e.slot.Gone(); now {
			t.Error("gone with its build in the store")
		}
		_, err := e.state.Update(context.Background(), name, func(s *store.PluginState) error {
			s.Active = store.Ref{}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if now, _ := e.slot.Gone(); now {
			t.Error("gone while it runs")
		}
		p.kill()
		time.Sleep(time.Minute) // virtual time
		synctest.Wait()
		if now, _ := e.slot.Gone(); !now {
			t.Errorf("not gone: %+v", e.slot.Status())
		}
	})
}
