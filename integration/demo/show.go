package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sox-host/sox-host/integration/internal/history"
	"github.com/sox-host/sox-host/integration/internal/rig"
	"github.com/sox-host/sox-host/integration/internal/stamp"
)

const (
	older   = "1.0.0"
	newer   = "1.1.0"
	broken  = rig.NotesBroken
	workers = 8

	// intermission lets one see that nothing happens to the calls between two commands.
	intermission = time.Second
)

// show is one performance: a home of its own, the client with its host, and what was recorded.
type show struct {
	began    time.Time
	dir      string // temporary, removed at the end
	home     string // HOME of the host and of the commands
	programs *rig.Programs
	host     string // path of sox-host
	log      *os.File

	client *mcp.ClientSession
	tools  []string // as they were shown last
	record *history.Recorder

	mu      sync.Mutex
	notices int           // list_changed
	heard   chan struct{} // one for each, as far as anyone waits
	windows []window      // of commands
	calls   []timed
}

// window is the time in which a command ran.
type window struct{ from, to time.Duration }

// timed is the duration of one call.
type timed struct{ from, to time.Duration }

// prepare builds everything and fills a plugins folder.
func prepare(ctx context.Context) (*show, error) {
	s := &show{began: time.Now(), heard: make(chan struct{}, 16), record: history.NewRecorder(map[string]string{"notes": older})}
	s.say("sox-host and three builds of notes are being built, which takes a while the first time")
	var err error
	if s.dir, err = os.MkdirTemp("", "sxd"); err != nil {
		return nil, err
	}
	s.home = filepath.Join(s.dir, "home")
	err = errors.Join(os.MkdirAll(filepath.Join(s.home, ".sox", "plugins"), 0o700), os.MkdirAll(filepath.Join(s.dir, "bin"), 0o700))
	if err == nil {
		s.log, err = os.Create(filepath.Join(s.dir, "host.log"))
	}
	if err == nil {
		s.programs = rig.NewPrograms(filepath.Join(s.dir, "bin"), false)
		s.host, err = s.programs.Host()
	}
	if err == nil {
		err = errors.Join(s.drop("notes", older), s.drop("notes", newer))
	}
	if err == nil {
		// Without a settings file a plugin sees nothing of this environment but the usual.
		settings := fmt.Sprintf(`{"env":{"NOTES_JOURNAL":%q}}`, s.journal())
		err = os.WriteFile(filepath.Join(s.home, ".sox", "plugins", "notes.json"), []byte(settings), 0o600)
	}
	if err == nil {
		_, err = s.programs.Example("notes", broken) // so that building does not interrupt the show
	}
	if err == nil {
		// The first start takes the highest version; the show begins with the older one.
		err = s.quiet(ctx, "upgrade", "notes", "--to", older)
	}
	if err != nil {
		s.tidy()
		return nil, err
	}
	s.say("sox-host and notes %s and %s are built", older, newer)
	return s, nil
}

// journal is where notes writes what it did.
func (s *show) journal() string { return filepath.Join(s.dir, "journal") }

// drop puts a version into the plugins folder.
func (s *show) drop(name, version string) error {
	path, err := s.programs.Example(name, version)
	if err != nil {
		return err
	}
	body, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return stamp.WriteProgram(filepath.Join(s.home, ".sox", "plugins", name+"_v"+version), body)
}

// environ is what host and commands get.
func (s *show) environ() []string {
	return []string{"HOME=" + s.home, "PATH=" + os.Getenv("PATH"), "TERM=dumb"}
}

// say prints a line of the timeline.
func (s *show) say(format string, args ...any) {
	fmt.Printf("%6.2fs  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// connect starts the host the way an MCP client does.
func (s *show) connect(ctx context.Context) error {
	cmd := exec.Command(s.host, "serve")
	cmd.Env, cmd.Stderr = s.environ(), s.log
	client := mcp.NewClient(&mcp.Implementation{Name: "demo", Version: "1.0.0"}, &mcp.ClientOptions{
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { s.notice() },
	})
	session, err := client.Connect(ctx, &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		return fmt.Errorf("connect to sox-host: %w\n%s", err, s.hostLog())
	}
	s.client = session
	s.say("sox-host serve runs under the official Go client, MCP %s", session.InitializeResult().ProtocolVersion)
	return nil
}

func (s *show) notice() {
	s.record.Notice()
	s.mu.Lock()
	s.notices++
	s.mu.Unlock()
	select {
	case s.heard <- struct{}{}:
	default:
	}
}

// look lists what there is.
func (s *show) look(ctx context.Context) error {
	tools, err := s.listTools(ctx)
	if err != nil {
		return err
	}
	s.tools = tools
	notes, err := s.client.ListResources(ctx, nil)
	if err != nil {
		return fmt.Errorf("list resources: %w", err)
	}
	s.say("the vault has %d notes; tools: %s", len(notes.Resources), strings.Join(tools, " "))
	return nil
}

func (s *show) listTools(ctx context.Context) ([]string, error) {
	asked := s.record.Now()
	list, err := s.client.ListTools(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("list tools: %w", err)
	}
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	s.record.Listed(asked, map[string][]string{"notes": names})
	return names, nil
}

// change waits for list_changed and prints what is different now.
func (s *show) change(ctx context.Context) {
	select {
	case <-s.heard:
	case <-time.After(10 * time.Second): // the verdict will say that a notice is missing
		return
	case <-ctx.Done():
		return
	}
	tools, err := s.listTools(ctx)
	if err != nil {
		s.say("list_changed, and then: %v", err)
		return
	}
	var diff []string
	for _, tool := range tools {
		if !slices.Contains(s.tools, tool) {
			diff = append(diff, "+"+tool)
		}
	}
	for _, tool := range s.tools {
		if !slices.Contains(tools, tool) {
			diff = append(diff, "-"+tool)
		}
	}
	s.tools = tools
	s.say("the client has heard list_changed: %s", strings.Join(diff, " "))
}

// pause goes on after a moment, or at the end.
func (s *show) pause(ctx context.Context) {
	select {
	case <-time.After(intermission):
	case <-ctx.Done():
	}
}

// command runs sox-host from another process, as a person would in another window. The returned function waits for its end and shows what it
// printed.
func (s *show) command(args ...string) (finished func()) {
	s.say("$ sox-host %s", strings.Join(args, " "))
	to := newer
	if args[0] == "rollback" {
		to = older
	}
	var stdout, stderr bytes.Buffer
	ended := make(chan struct{})
	// Ends with the command, whose steps are all bounded.
	go func() {
		defer close(ended)
		began := s.record.Now()
		s.record.Switch("notes", to, func() bool {
			cmd := exec.Command(s.host, args...)
			cmd.Env = s.environ()
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			return cmd.Run() == nil
		})
		s.mu.Lock()
		defer s.mu.Unlock()
		s.windows = append(s.windows, window{began, s.record.Now()})
	}()
	return func() {
		<-ended
		out := stdout.String()
		if out == "" {
			out = stderr.String()
		}
		for line := range strings.Lines(out) {
			fmt.Printf("         | %s\n", strings.TrimRight(line, "\n"))
		}
	}
}

// quiet runs a command that is not part of the show.
func (s *show) quiet(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, s.host, args...)
	cmd.Env = s.environ()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("sox-host %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// disconnect closes the host's stdin and waits for its end.
func (s *show) disconnect() error {
	if err := s.client.Close(); err != nil {
		return fmt.Errorf("the host does not end well: %w\n%s", err, s.hostLog())
	}
	s.client = nil
	return nil
}

// hostLog is what the host printed.
func (s *show) hostLog() string {
	raw, err := os.ReadFile(s.log.Name())
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// tidy ends and removes everything.
func (s *show) tidy() {
	if s.client != nil {
		_ = s.client.Close() // after a failure that has been reported
	}
	if s.log != nil {
		_ = s.log.Close() // it is removed next
	}
	if err := os.RemoveAll(s.dir); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
	}
}
