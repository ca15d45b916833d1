package wrap

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sox-host/sox-host/host/internal/process"
)

// The servers that these tests start as processes are this test binary, run again with serverCommand and the
// name of a program.
const (
	guardCommand  = "__guard"
	serverCommand = "__server"
)

// serverLife bounds the life of every process, whatever goes wrong.
const serverLife = time.Minute

// programs are the bodies that the test binary can run as. Set by the files that use them.
var programs = map[string]func(args []string){}

// register names a program; the tests start it by the name.
func register(name string, body func(args []string)) string {
	programs[name] = body
	return name
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == guardCommand {
		os.Exit(process.RunGuard(os.Args[2:]))
	}
	if len(os.Args) > 2 && os.Args[1] == serverCommand {
		time.AfterFunc(serverLife, func() { os.Exit(99) })
		body := programs[os.Args[2]]
		if body == nil {
			fmt.Fprintln(os.Stderr, "no program", os.Args[2])
			os.Exit(98)
		}
		body(os.Args[3:])
		os.Exit(0)
	}
	flag.Parse()
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Println("goroutines left:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// patience is how long a test waits for an event that is certain to come.
const patience = time.Minute

// await waits for an event and fails the test if it does not come.
func await[T any](t *testing.T, what string, event <-chan T) T {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case v := <-event:
		return v
	case <-timer.C:
		t.Fatalf("%s: nothing within %v", what, patience)
		panic("unreachable")
	}
}
