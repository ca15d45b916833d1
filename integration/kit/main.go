// Kit is the plugin that tests are made of. It behaves as its stamp says (package stamp), from exemplary to hostile, and answers every call with
// its version and process id. It is not an example of how to write a plugin: see examples for those.
//
// Every tool is also a plain method: tool echo of a plugin named kit is kit.echo, with the arguments as params and the structured content as result.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/sox-host/sox-host/integration/internal/stamp"
	"github.com/sox-host/sox-host/sdk"
)

// grandchildLife bounds what a forgotten grandchild can cost: ten minutes.
const grandchildLife = 10 * time.Minute

func main() {
	if len(os.Args) == 2 && os.Args[1] == "grandchild" {
		time.Sleep(grandchildLife)
		return
	}
	o, err := stamp.Read()
	if err != nil {
		fmt.Fprintln(os.Stderr, "kit:", err)
		os.Exit(9)
	}
	boot(o)
	k := &kit{o: o}
	settings := []sdk.Setting{sdk.WithTitle("Test kit"), sdk.WithInstructions("Use kit to test.")}
	if o.Exclusive {
		settings = append(settings, sdk.Exclusive())
	}
	p := sdk.New(o.Name, o.Says, settings...)
	k.p = p
	if o.Snapshot {
		sdk.State(p, k.save, k.restore)
	}
	sdk.HandleFunc(p, o.Name+".*", k.method)
	p.ServeMCP(k)
	k.crashAfter(o.CrashAfterBootMS)
	sdk.Main(p)
	if o.IgnoreTerm {
		hang()
	}
}

// boot does what has to be done, or to go wrong, before the plugin is ready.
func boot(o stamp.Options) {
	if o.BootSays != "" {
		fmt.Fprintln(os.Stderr, o.BootSays)
	}
	if o.BootMark != "" {
		mark(o.BootMark)
	}
	if o.IgnoreTerm {
		signal.Ignore(syscall.SIGTERM, os.Interrupt)
	}
	if o.ForkGrandchild != "" {
		grandchild(o.ForkGrandchild)
	}
	if o.LockFile != "" {
		lock(o.LockFile)
	}
	if o.BootHang {
		hang()
	}
	if err := until(context.Background(), o.BootUntil); err != nil {
		fail("%v", err)
	}
	time.Sleep(time.Duration(o.BootDelayMS) * time.Millisecond)
	if o.BootExit != 0 {
		os.Exit(o.BootExit)
	}
}

// mark leaves a line that says that this process runs.
func mark(path string) {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(f, os.Getpid())
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		fail("mark: %v", err)
	}
}

// grandchild starts a process that nobody waits for.
func grandchild(where string) {
	self, err := os.Executable()
	if err != nil {
		fail("grandchild: %v", err)
	}
	cmd := exec.Command(self, "grandchild")
	cmd.Stderr = os.Stderr // which the host reads: it must not wait for its end
	cmd.SysProcAttr = detached(strings.HasPrefix(where, "session"))
	if err := cmd.Start(); err != nil {
		fail("grandchild: %v", err)
	}
}

func fail(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "kit: "+format+"\n", args...)
	os.Exit(9)
}

// hang never returns. An empty select would be taken for a deadlock by the runtime, since nothing else runs here.
func hang() {
	for {
		time.Sleep(time.Hour)
	}
}
