package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sox-host/sox-host/integration/internal/rig"
)

// remoteServer is an MCP server of the official SDK behind a url of this machine. It can be stopped and started anew at
// the same address; then it has forgotten every session.
type remoteServer struct {
	t       *testing.T
	place   *rig.Place
	options *mcp.StreamableHTTPOptions
	token   string // that every request has to carry
	address string

	waiting chan struct{} // one for each call of wait that has begun
	release chan struct{} // closed to let them end
	calls   atomic.Int32  // of wait
	foreign atomic.Int32  // requests without the token

	mu     sync.Mutex
	server *mcp.Server // the present one
	http   *http.Server
	ended  chan struct{} // closed when its listener is
}

func newRemoteServer(t *testing.T, p *rig.Place, instance, token string, stateless bool) *remoteServer {
	t.Helper()
	r := &remoteServer{
		t: t, place: p, token: token, address: "127.0.0.1:0",
		// Without protection it is also found by names that are not of this machine.
		options: &mcp.StreamableHTTPOptions{Stateless: stateless, DisableLocalhostProtection: true},
		waiting: make(chan struct{}, 100), release: make(chan struct{}),
	}
	r.start(instance)
	t.Cleanup(r.stop)
	return r
}

// url is where it is.
func (r *remoteServer) url() string { return "http://" + r.address + "/mcp" }

// start serves as a new process would. Its tools tell the instance.
func (r *remoteServer) start(instance string) {
	r.t.Helper()
	var listener net.Listener
	r.place.Await("the server's address", func() (free bool) { // a connection may have got the port meanwhile
		var err error
		listener, err = net.Listen("tcp", r.address)
		return err == nil
	})
	r.address = listener.Addr().String()
	server := r.tools(instance)
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, r.options)
	web := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Authorization") != "Bearer "+r.token {
			r.foreign.Add(1)
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, req)
	})}
	ended := make(chan struct{})
	r.mu.Lock()
	r.server, r.http, r.ended = server, web, ended
	r.mu.Unlock()
	go func() { // ends with stop
		defer close(ended)
		if err := web.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			r.t.Error(err)
		}
	}()
}

// stop ends every connection, in the middle of whatever it carries.
func (r *remoteServer) stop() {
	r.mu.Lock()
	web, ended := r.http, r.ended
	r.mu.Unlock()
	_ = web.Close() // of connections that are cut on purpose
	<-ended
}

func (r *remoteServer) present() *mcp.Server {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.server
}

func (r *remoteServer) tools(instance string) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "tracker", Version: "1.0.0"}, &mcp.ServerOptions{
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	type out struct {
		Instance string `json:"instance"`
		Text     string `json:"text"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "echo"}, func(_ context.Context, _ *mcp.CallToolRequest, in struct {
		Text string `json:"text"`
	}) (*mcp.CallToolResult, out, error) {
		return nil, out{instance, in.Text}, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "steps"}, func(ctx context.Context, req *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, out, error) {
		for i := range 3 {
			p := &mcp.ProgressNotificationParams{ProgressToken: req.Params.GetProgressToken(), Progress: float64(i + 1), Total: 4}
			if err := req.Session.NotifyProgress(ctx, p); err != nil {
				return nil, out{}, err
			}
		}
		r.waiting <- struct{}{}
		<-r.release
		return nil, out{instance, "done"}, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "ask"}, func(ctx context.Context, req *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, out, error) {
		answer, err := req.Session.Elicit(ctx, &mcp.ElicitParams{Message: "Who are you?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}}}`)})
		if err != nil {
			return nil, out{}, err
		}
		return nil, out{instance, fmt.Sprint(answer.Content["name"])}, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "wait"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, out, error) {
		r.calls.Add(1)
		r.waiting <- struct{}{}
		<-r.release
		return nil, out{instance, "waited"}, nil
	})
	s.AddResource(&mcp.Resource{URI: "mem:///issue", Name: "issue"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: "mem:///issue", Text: instance}}}, nil
	})
	return s
}

// importRemote imports a server from the file that Claude Code keeps in a project.
func importRemote(t *testing.T, p *rig.Place, r *remoteServer) {
	t.Helper()
	p.RemoteProgram()
	file := p.Write(".mcp.json", fmt.Sprintf(`{"mcpServers":{"tracker":{"type":"http","url":%q,"headers":{"Authorization":"Bearer %s"}}}}`, r.url(), r.token))
	out := p.MustCommand("import", file)
	if !strings.Contains(out.Stdout, "tracker  imported as tracker 0.0.0") || strings.Contains(out.Stdout, r.token) {
		t.Errorf("import: %s", out)
	}
}

// remoteManifest drops a manifest of another version that leads to r.
func remoteManifest(p *rig.Place, version string, r *remoteServer) {
	p.Write(filepath.Join(p.Plugins, "tracker_v"+version+".json"), fmt.Sprintf(`{"url":%q,"headers":{"Authorization":"${MCP_TRACKER_AUTHORIZATION}"}}`, r.url()))
}

const secretToken = "t0ken-of-the-tracker"

// A server behind a url, imported from Claude Code, through the official client: both eras on both sides.
func TestRemoteServer(t *testing.T) {
	t.Parallel()
	for _, stateless := range []bool{false, true} {
		for _, revision := range eras {
			t.Run(fmt.Sprintf("stateless=%v_client=%s", stateless, revision), func(t *testing.T) {
				t.Parallel()
				p := rig.NewPlace(t)
				r := newRemoteServer(t, p, "one", secretToken, stateless)
				importRemote(t, p, r)
				progress := make(chan float64, 100)
				c := connect(t, p, revision, &mcp.ClientOptions{
					ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
						return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ann"}}, nil
					},
					ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
						progress <- req.Params.Progress
					},
				})
				if tools, want := c.tools(t), []string{"tracker__ask", "tracker__echo", "tracker__steps", "tracker__wait"}; !slices.Equal(tools, want) {
					t.Errorf("tools %v, want %v", tools, want)
				}
				if got := c.call(t, "tracker__echo", map[string]any{"text": "hé"}); got["text"] != "hé" || got["instance"] != "one" {
					t.Errorf("echo: %v", got)
				}
				stepsThroughHost(t, c, r, progress)
				if !stateless { // without a session a server has nobody to ask
					if got := c.call(t, "tracker__ask", nil); got["text"] != "Ann" {
						t.Errorf("ask: %v", got)
					}
				}
				read, err := c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "mem:///issue"})
				if err != nil || read.Contents[0].Text != "one" {
					t.Errorf("read: %+v, %v", read, err)
				}
				if _, err := c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "mem:///no"}); err == nil {
					t.Error("a resource was read that is not there")
				}
				if n := r.foreign.Load(); n > 0 {
					t.Errorf("%d requests came without the header", n)
				}
				if processes := fmt.Sprint(p.Processes()); strings.Contains(processes, secretToken) || strings.Contains(processes, r.address) ||
					runtime.GOOS == "linux" && !strings.Contains(processes, "sox-remote") {
					t.Errorf("every user can list this: %s", processes)
				}
			})
		}
	}
}

// stepsThroughHost calls a tool that reports progress, and lets it end once all of it has come: progress that comes
// together with an answer is dropped.
func stepsThroughHost(t *testing.T, c *sdkClient, r *remoteServer, progress <-chan float64) {
	t.Helper()
	answered := make(chan error, 1)
	go func() {
		params := &mcp.CallToolParams{Name: "tracker__steps"}
		params.SetProgressToken("steps")
		result, err := c.CallTool(t.Context(), params)
		if err == nil && result.IsError {
			err = fmt.Errorf("%+v", result.Content[0])
		}
		answered <- err
	}()
	<-r.waiting
	for want := range 3 {
		if got := <-progress; got != float64(want+1) {
			t.Errorf("progress %v, want %d", got, want+1)
		}
	}
	close(r.release)
	if err := <-answered; err != nil {
		t.Errorf("steps: %v", err)
	}
}

// What a server behind a url says of its resources and lists reaches the client, also after it was started anew.
func TestRemoteServerIsStartedAnew(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	r := newRemoteServer(t, p, "one", secretToken, false)
	importRemote(t, p, r)
	updated := make(chan string, 100)
	c := connect(t, p, "2025-11-25", &mcp.ClientOptions{
		ResourceUpdatedHandler: func(_ context.Context, req *mcp.ResourceUpdatedNotificationRequest) { updated <- req.Params.URI },
	})
	c.tools(t)
	if err := c.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "mem:///issue"}); err != nil {
		t.Fatal(err)
	}
	expectUpdate := func() {
		t.Helper()
		// The standing stream may not be open yet, and a server drops what nobody hears.
		p.Await("a resource that was updated", func() bool {
			if err := r.present().ResourceUpdated(t.Context(), &mcp.ResourceUpdatedNotificationParams{URI: "mem:///issue"}); err != nil {
				t.Error(err)
			}
			select {
			case uri := <-updated:
				return uri == "mem:///issue"
			default:
				return false
			}
		})
	}
	expectUpdate()

	lost := make(chan error, 1)
	go func() {
		_, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "tracker__wait"})
		lost <- err
	}()
	<-r.waiting
	r.stop()
	if err := <-lost; err == nil || !strings.Contains(err.Error(), "The request may have run; it will not be repeated.") {
		t.Errorf("the call that was cut: %v", err)
	}
	meanwhile := make(chan map[string]any, 1)
	go func() { meanwhile <- c.call(t, "tracker__echo", map[string]any{"text": "x"}) }()
	r.start("two")
	if got := <-meanwhile; got["instance"] != "two" {
		t.Errorf("the call meanwhile: %v", got)
	}
	if got := c.call(t, "tracker__echo", map[string]any{"text": "y"}); got["instance"] != "two" {
		t.Errorf("the call after it: %v", got)
	}
	for len(updated) > 0 {
		<-updated
	}
	expectUpdate() // the subscription was made again
	mcp.AddTool(r.present(), &mcp.Tool{Name: "late"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
		return nil, nil, nil
	})
	c.awaitChange(t)
	if tools := c.tools(t); !slices.Contains(tools, "tracker__late") {
		t.Errorf("tools: %v", tools)
	}
	if n := r.calls.Load(); n != 1 {
		t.Errorf("the call that was cut ran %d times", n)
	}
	close(r.release)
}

// From one server to another one, with calls in flight: those end where they began, and none is lost.
func TestRemoteServerIsReplaced(t *testing.T) {
	t.Parallel()
	for _, stateless := range []bool{false, true} {
		t.Run(fmt.Sprintf("stateless=%v", stateless), func(t *testing.T) {
			t.Parallel()
			p := rig.NewPlace(t)
			old, anew := newRemoteServer(t, p, "one", secretToken, stateless), newRemoteServer(t, p, "two", secretToken, stateless)
			importRemote(t, p, old)
			c := connect(t, p, eras[1], nil)
			c.tools(t)
			const inFlight = 5
			ended := make(chan map[string]any, inFlight)
			for range inFlight {
				go func() { ended <- c.call(t, "tracker__wait", nil) }()
			}
			for range inFlight {
				<-old.waiting
			}
			remoteManifest(p, "1.0.0", anew)
			upgraded := make(chan rig.Output, 1)
			go func() { upgraded <- p.Command("upgrade", "tracker") }()
			p.Await("a call answered by the other server", func() bool {
				return c.call(t, "tracker__echo", map[string]any{"text": "x"})["instance"] == "two"
			})
			if n := len(ended); n > 0 {
				t.Errorf("%d calls ended before their server let them", n)
			}
			close(old.release)
			for range inFlight {
				if got := <-ended; got["instance"] != "one" {
					t.Errorf("a call in flight ended at %v", got)
				}
			}
			if out := <-upgraded; out.Code != 0 || !strings.Contains(out.String(), "0 calls failed") {
				t.Errorf("upgrade: exit code %d\n%s", out.Code, out)
			}
			old.stop()
			if got := c.call(t, "tracker__echo", map[string]any{"text": "y"}); got["instance"] != "two" {
				t.Errorf("after the upgrade: %v", got)
			}
			// What cannot be reached, or does not know the token, is no upgrade.
			strange := newRemoteServer(t, p, "three", "another-token", stateless)
			remoteManifest(p, "2.0.0", strange)
			if out := p.Command("upgrade", "tracker"); out.Code == 0 || !strings.Contains(out.String(), "401 Unauthorized") || strings.Contains(out.String(), secretToken) {
				t.Errorf("a server that does not know us: exit code %d\n%s", out.Code, out)
			}
			strange.stop()
			if out := p.Command("upgrade", "tracker"); out.Code == 0 || !strings.Contains(out.String(), "cannot be reached") {
				t.Errorf("a server that is away: exit code %d\n%s", out.Code, out)
			}
			if got := c.call(t, "tracker__echo", map[string]any{"text": "z"}); got["instance"] != "two" {
				t.Errorf("after two upgrades that failed: %v", got)
			}
		})
	}
}

// The host's proxy is sox-remote's too. Only a proxy can find this server, whose name no other knows.
func TestRemoteServerBehindAProxy(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	r := newRemoteServer(t, p, "proxied", secretToken, false)
	p.RemoteProgram()
	p.Write(filepath.Join(p.Plugins, "tracker_v1.0.0.json"), `{"url":"http://tracker.invalid/mcp","headers_file":"token"}`)
	p.Write(filepath.Join(p.Plugins, "token"), `{"Authorization":"Bearer `+secretToken+`"}`)
	p.Setenv("HTTP_PROXY", "http://"+r.address)
	c := connect(t, p, eras[0], nil)
	c.tools(t)
	if got := c.call(t, "tracker__echo", map[string]any{"text": "x"}); got["instance"] != "proxied" {
		t.Errorf("echo: %v", got)
	}
}

// A server that is away when the host starts is found as soon as it comes, by nobody's doing.
func TestRemoteServerComesLater(t *testing.T) {
	t.Parallel()
	p := rig.NewPlace(t)
	r := newRemoteServer(t, p, "one", secretToken, false)
	importRemote(t, p, r)
	r.stop()
	c := connect(t, p, "2025-11-25", nil)
	if tools := c.tools(t); len(tools) > 0 {
		t.Errorf("tools of a server that is away: %v", tools)
	}
	if out := p.Command("status"); !strings.Contains(out.String(), "cannot be reached") {
		t.Errorf("status: %s", out)
	}
	r.start("two")
	c.awaitChange(t)
	if tools := c.tools(t); !slices.Contains(tools, "tracker__echo") {
		t.Errorf("tools: %v", tools)
	}
	if got := c.call(t, "tracker__echo", map[string]any{"text": "x"}); got["instance"] != "two" {
		t.Errorf("echo: %v", got)
	}
}
