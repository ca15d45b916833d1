package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/sox-host/sox-host/plugin/wire"
)

// version is set by release builds: -ldflags "-X main.version=1.2.3".
var version string

const usage = `sox-remote stands for an MCP server behind a url: it speaks MCP on stdin and stdout, and
HTTP to the server. sox-host starts it for a manifest with a "url"; to start it from
another client, set these variables, not arguments, since every user can see those:

  ` + wire.EnvRemoteURL + `           https://HOST/PATH
  ` + wire.EnvRemoteTransport + `     "http" (the default), or "sse" for the older HTTP+SSE
  ` + wire.EnvRemoteHeaders + `       {"Authorization": "Bearer ${NAME}"}
  ` + wire.EnvRemoteHeadersFile + `  a file with more of them, for you alone (mode 0600)

${NAME} in a url and in the value of a header stands for the variable NAME. HTTP_PROXY,
HTTPS_PROXY, NO_PROXY, SSL_CERT_FILE and SSL_CERT_DIR are honoured.

  sox-remote --version
  sox-remote --help
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.LookupEnv, os.Stdin, os.Stdout, os.Stderr))
}

// exitAnew asks to be started anew: EX_TEMPFAIL of sysexits.h.
const exitAnew = 75

// run is main with everything that it touches. It returns the exit code: 0 when the client has gone, 1 when stdin or
// stdout failed, 2 when it cannot begin, exitAnew when the server was away at first and is there now.
func run(ctx context.Context, args []string, lookup func(string) (string, bool), stdin io.Reader, stdout, stderr io.Writer) int {
	logger := log.New(stderr, "sox-remote: ", 0)
	if len(args) > 0 {
		switch args[0] {
		case "--version":
			fmt.Fprintf(stdout, "sox-remote %s (%s, %s/%s)\n", readVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return 0
		case "--help", "-h":
			fmt.Fprint(stdout, usage)
			return 0
		}
		logger.Print("it takes no arguments, for every user can see them; see sox-remote --help for the variables it reads")
		return 2
	}
	c, err := loadConfig(lookup)
	if err != nil {
		logger.Print(err)
		return 2
	}
	headers, err := c.headers()
	if err != nil {
		logger.Print(err)
		return 2
	}
	r := newRelay(c, headers, newTransport(), stdout, logger)
	err = r.run(ctx, stdin)
	if err != nil {
		logger.Print(err)
	}
	switch {
	case errors.Is(err, errServerIsBack):
		return exitAnew
	case err != nil:
		return 1
	}
	return 0
}

func readVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}
