//go:build linux || darwin

package wrap

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sox-host/sox-host/host/internal/bridge"
	"github.com/sox-host/sox-host/host/internal/process"
	"github.com/sox-host/sox-host/host/internal/store"
	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

// realStart returns a Config that runs a program of this test binary, or with it as $0 a shell script.
func realStart(t *testing.T, m store.ManifestSpec) Config {
	t.Helper()
	spawner := process.NewSpawner(process.Options{})
	t.Cleanup(func() {
		if err := spawner.Close(); err != nil {
			t.Error(err)
		}
	})
	spec, err := Command(m, store.Settings{}, t.TempDir(), os.Environ())
	if err != nil {
		t.Fatal(err)
	}
	return Config{Spec: spec, Start: func(ctx context.Context, spec process.Spec) (Process, error) {
		p, err := spawner.Start(ctx, spec)
		if err != nil {
			return nil, err
		}
		return p, nil
	}}
}

func program(name string, args ...string) store.ManifestSpec {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return store.ManifestSpec{
		Command: self,
		Args:    append([]string{serverCommand, name}, args...),
		Env:     map[string]string{"GORACE": "atexit_sleep_ms=0"},
	}
}

// newRealRig starts the spec kept in cfg; newRig names the rest of it.
func newRealRig(t *testing.T, m store.ManifestSpec) *rig {
	t.Helper()
	return newRig(t, realStart(t, m))
}

func say(format string, args ...any) { fmt.Printf(format+"\n", args...) }

var (
	// sdkServer is the official Go SDK's, of both eras or those it is told. It adds a tool when its tool grow is called,
	// and says that a resource has changed when touch is.
	sdkServer = register("sdk", func(args []string) {
		server := mcp.NewServer(&mcp.Implementation{Name: "sdk", Version: "1"}, &mcp.ServerOptions{
			Instructions: "Demo.", SupportedProtocolVersions: args,
			SubscribeHandler: func(_ context.Context, r *mcp.SubscribeRequest) error {
				if r.Params.URI == "note:none" {
					return mcp.ResourceNotFoundError(r.Params.URI)
				}
				return nil
			},
			UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
		})
		server.AddResource(&mcp.Resource{Name: "one", URI: "note:one"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return &mcp.ReadResourceResult{}, nil
		})
		type in struct {
			Text string `json:"text"`
		}
		mcp.AddTool(server, &mcp.Tool{Name: "say"}, func(_ context.Context, _ *mcp.CallToolRequest, in in) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: in.Text}}}, nil, nil
		})
		mcp.AddTool(server, &mcp.Tool{Name: "touch"}, func(ctx context.Context, _ *mcp.CallToolRequest, in in) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{}, nil, server.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: in.Text})
		})
		mcp.AddTool(server, &mcp.Tool{Name: "grow"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			mcp.AddTool(server, &mcp.Tool{Name: "grown"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
				return &mcp.CallToolResult{}, nil, nil
			})
			return &mcp.CallToolResult{}, nil, nil
		})
		_ = server.Run(context.Background(), &mcp.StdioTransport{})
	})

	// deafServer ignores the end of stdin and SIGTERM.
	deafServer = register("deaf", func([]string) {
		signal.Ignore(syscall.SIGTERM)
		eachLine(os.Stdin, func(m message) { legacy(m, say) })
		select {}
	})

	// lateServer has tools only once it was told that it is initialized.
	lateServer = register("late", func([]string) {
		tools := ""
		eachLine(os.Stdin, func(m message) {
			switch m.Method {
			case "notifications/initialized":
				tools = `{"name":"late","inputSchema":{"type":"object"}}`
			case "tools/list":
				say(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[%s]}}`, m.ID, tools)
			default:
				if !legacy(m, say) {
					unknown(m, say)
				}
			}
		})
	})

	// mirrorServer answers with the params it got, and with its arguments. It decodes nothing: its lines are long.
	mirrorServer = register("mirror", func(args []string) {
		lines := wire.NewLineReader(os.Stdin, 0)
		var env wire.Envelope
		for {
			line, err := lines.Next()
			if err != nil {
				return
			}
			if wire.Scan(line, &env) != nil {
				continue
			}
			result := env.Params()
			switch string(env.Method()) {
			case "mirror":
			case "args":
				result, _ = json.Marshal(args)
			case "environment":
				result, _ = json.Marshal(os.Environ())
			default:
				continue
			}
			_, _ = os.Stdout.Write(append(wire.AppendResult(nil, env.ID(), result), '\n'))
		}
	})
)

// script is a server that is a shell with a child in the background, which holds stdout open and outlives it.
// It prints the two pids.
const script = `sleep 60 & echo "pids $$ $!"; read line; echo '{"jsonrpc":"2.0","id":99,"method":"ping"}'; wait`

func TestServers_of_the_official_sdk(t *testing.T) {
	eras := map[string][]string{"both": nil, "legacy": {"2025-06-18"}, "modern": {"2026-07-28"}}
	for name, versions := range eras {
		t.Run(name, func(t *testing.T) {
			r := newRealRig(t, program(sdkServer, versions...))
			r.greet(1)
			r.open(2, wire.RevisionModern)
			discover := r.must(2, "server/discover", "{"+modernMeta+"}")
			if member(discover, "instructions") != `"Demo."` || member(discover, "_meta>"+bridge.MetaPrefix+"serverInfo>name") != `"sdk"` {
				t.Errorf("discover: %s", discover)
			}
			for session, params := range map[uint64]string{1: `{"name":"say","arguments":{"text":"hi"}}`, 2: `{` + modernMeta + `,"name":"say","arguments":{"text":"hi"}}`} {
				got := r.must(session, "tools/call", params)
				if member(got, "content") != `[{"type":"text","text":"hi"}]` {
					t.Errorf("session %d: %s", session, got)
				}
				if kind := member(got, "resultType"); (kind == `"complete"`) != (session == 2) {
					t.Errorf("session %d: resultType %s", session, kind)
				}
			}
			// What changed reaches each client in the way of its era.
			listen := `{` + modernMeta + `,"notifications":{"toolsListChanged":true,"resourceSubscriptions":["note:one","note:two"]}}`
			r.start(2, methodListen, listen)
			if m := r.next(); m.Method != "notifications/subscriptions/acknowledged" || m.Session != 2 {
				t.Errorf("the listen: %s", m.raw)
			}
			for _, uri := range []string{"note:one", "note:two"} {
				r.must(1, "resources/subscribe", uriParams(uri))
			}
			// A modern server is asked once more for each, and its lists are read again then.
			for range len(r.from) {
				if m := r.next(); !strings.HasSuffix(m.Method, "/list_changed") {
					t.Errorf("a new subscription: %s", m.raw)
				}
			}
			if e := r.refused(1, "resources/subscribe", uriParams("note:none")); !strings.Contains(e.Message, "not found") {
				t.Errorf("a resource that is not there: %v", e)
			}
			for session, meta := range map[uint64]string{1: "", 2: modernMeta + ","} {
				for _, uri := range []string{"note:one", "note:two"} {
					r.must(session, "tools/call", `{`+meta+`"name":"touch","arguments":{"text":"`+uri+`"}}`)
					r.told(session, "notifications/resources/updated", uri)
				}
				r.must(session, "tools/call", `{`+meta+`"name":"grow"}`)
				r.told(session, "notifications/tools/list_changed", "")
			}
			r.must(1, "resources/unsubscribe", uriParams("note:one"))
			r.must(1, "tools/call", `{"name":"touch","arguments":{"text":"note:two"}}`)
			r.told(1, "notifications/resources/updated", "note:two")
			want := Modern
			if name == "legacy" {
				want = Legacy
			}
			if got := r.eras.Load(); got != want {
				t.Errorf("era %q, want %q", got, want)
			}
			if ok := r.must(0, wire.MethodHealth, ""); ok != `{"ok":true}` {
				t.Errorf("health: %s", ok)
			}
		})
	}
}

func TestServer_that_lists_only_after_initialized(t *testing.T) {
	r := newRealRig(t, program(lateServer))
	r.greet(1)
	if got := r.must(1, "tools/list", ""); member(got, "tools") == "[]" {
		t.Error("legacy: the list came before the server was initialized")
	}
	r.open(2, wire.RevisionModern)
	if got := r.must(2, "tools/list", "{"+modernMeta+"}"); member(got, "tools") == "[]" {
		t.Error("modern: the list came before the server was initialized")
	}
}

func TestServer_that_never_ends_is_killed(t *testing.T) {
	r := newRealRig(t, program(deafServer))
	r.greet(1)
	r.b.Stop(process.Ladder{Close: 50 * time.Millisecond, Term: 50 * time.Millisecond})
	await(t, "the end", r.b.Exited())
	if exit := r.b.Exit(); exit.Signal != "SIGKILL" {
		t.Errorf("exit %v", exit)
	}
}

func TestLines_up_to_the_frame_limit_pass(t *testing.T) {
	const limit = 2 << 20 // the default, 16 MiB, takes a race detector on a busy machine a minute
	cfg := realStart(t, program(mirrorServer))
	cfg.MaxFrameBytes = limit
	r := newRig(t, cfg)
	r.open(1, wire.RevisionLegacy)
	// What surrounds the params in the larger of the two envelopes, the host's.
	around := len(wire.AppendRequest(nil, wire.Head{ID: 9, Session: 1}, "mirror", []byte(`{"x":""}`)))
	for _, size := range []int{65_535, 65_536, 65_537, 1_048_577, limit - around} {
		params := `{"x":"` + strings.Repeat("é\u2028", size/5) + strings.Repeat("z", size%5) + `"}`
		if got := r.must(1, "mirror", params); got != params {
			t.Errorf("%d bytes came back as %d", len(params), len(got))
		}
	}
}

func TestCommand_arguments_and_environment_reach_the_server_unchanged(t *testing.T) {
	t.Setenv("WRAP_SECRET", "s")
	t.Setenv("WRAP_SHOWN", "v")
	m := program(mirrorServer, "a b", `"'`, "$HOME", "*", "")
	m.EnvAllow = []string{"WRAP_SHOWN"}
	m.Env["EMPTY"] = ""
	r := newRealRig(t, m)
	r.open(1, wire.RevisionLegacy)
	if got := r.must(1, "args", "{}"); got != `["a b","\"'","$HOME","*",""]` {
		t.Error(got)
	}
	env := r.must(1, "environment", "{}")
	for entry, want := range map[string]bool{`"EMPTY="`: true, `"WRAP_SHOWN=v"`: true, "WRAP_SECRET": false, "SOX_PLUGIN_FD": false} {
		if strings.Contains(env, entry) != want {
			t.Errorf("%s in the environment: %v", entry, !want)
		}
	}
}

// pids reads what script prints.
func pids(t *testing.T, line string) []int {
	t.Helper()
	var out []int
	for _, field := range strings.Fields(line)[1:] {
		pid, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(line)
		}
		out = append(out, pid)
	}
	return out
}

func TestShell_with_a_grandchild_is_gone_after_Stop(t *testing.T) {
	r := newRealRig(t, store.ManifestSpec{Command: "sh", Args: []string{"-c", script}})
	r.open(1, wire.RevisionLegacy)
	all := pids(t, string(r.out.until(t, "pids ").Text))
	r.b.Stop(process.Ladder{Close: 50 * time.Millisecond, Term: 500 * time.Millisecond})
	for _, pid := range all {
		awaitGone(t, pid)
	}
}

// hostProgram is a host with a wrapped shell that runs its argument. It prints what the shell printed, and waits to be
// killed.
var hostProgram = register("host", func(args []string) {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	spawner := process.NewSpawner(process.Options{Guard: []string{self, guardCommand}})
	spec, err := Command(store.ManifestSpec{Command: "sh", Args: []string{"-c", args[0]}}, store.Settings{}, "/", os.Environ())
	if err != nil {
		panic(err)
	}
	spec.Plugin, spec.Version = "kit", "1.0.0"
	spec.Output = func(l process.Line) { fmt.Printf("%s\n", l.Text) }
	b := Launch(Config{Spec: spec, Start: func(ctx context.Context, spec process.Spec) (Process, error) {
		p, err := spawner.Start(ctx, spec)
		if err != nil {
			return nil, err
		}
		return p, nil
	}})
	conn := rpc.NewConn(b.Conn(), rpc.Options{Serve: func(*rpc.Conn, *wire.Envelope) {}})
	go func() { _ = conn.Run() }()
	if _, err := conn.Call(context.Background(), rpc.Request{Method: wire.MethodSessionOpen, Params: []byte(`{"session":1,"mcp":"2025-11-25"}`)}); err != nil {
		fmt.Println("failed", err)
	}
	select {}
})

func TestShell_with_a_grandchild_is_gone_within_a_second_of_the_hosts_end(t *testing.T) {
	killHostOf(t, script)
}

// killHostOf kills a host with a wrapped shell that prints pids, and waits for the end of those.
func killHostOf(t *testing.T, script string) {
	t.Helper()
	m := program(hostProgram, script)
	host := exec.Command(m.Command, m.Args...)
	host.Stderr = os.Stderr
	stdout, err := host.StdoutPipe()
	if err == nil {
		err = host.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = host.Process.Kill(); _ = host.Wait() })
	lines := bufio.NewScanner(stdout)
	if !lines.Scan() || !strings.HasPrefix(lines.Text(), "pids ") {
		t.Fatalf("the host printed %q", lines.Text())
	}
	all := pids(t, lines.Text())
	_ = host.Process.Kill()
	_ = host.Wait()
	for _, pid := range all {
		awaitGone(t, pid)
	}
}
