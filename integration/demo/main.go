// Demo shows what sox-host is for, in under a minute: a client of the official Go SDK works without pause while the server behind its pipe is
// replaced, replaced back, and offered a broken version.
//
// It counts as it goes, with the checker of the integration tests: a call that is lost, executed twice, or answered by a version that was not active
// makes it fail.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// run is the whole show.
func run(ctx context.Context) error {
	s, err := prepare(ctx)
	if err != nil {
		return err
	}
	defer s.tidy()
	if err := s.connect(ctx); err != nil {
		return err
	}
	if err := s.look(ctx); err != nil {
		return err
	}
	working := s.work(ctx)
	s.say("%d workers call without pause", workers)
	s.pause(ctx)

	for _, command := range []string{"upgrade", "rollback"} {
		finished := s.command(command, "notes")
		s.change(ctx)
		finished()
		s.pause(ctx)
	}

	if err := s.drop("notes", broken); err != nil {
		return err
	}
	s.say("a version that cannot start is dropped into the folder")
	s.command("upgrade", "notes", "--to", broken)()
	s.pause(ctx)

	working.stop()
	if err := s.disconnect(); err != nil {
		return err
	}
	return s.verdict(ctx)
}
