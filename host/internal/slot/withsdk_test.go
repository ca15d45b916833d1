package slot

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sox-host/sox-host/host/internal/process"
	"github.com/sox-host/sox-host/sdk"
)

// sdkProcess is a plugin of the SDK as a process of its own would be.
type sdkProcess struct {
	conn   net.Conn
	exited chan struct{}
	end    context.CancelFunc // as SIGTERM
}

func (p *sdkProcess) Conn() net.Conn          { return p.conn }
func (p *sdkProcess) Pid() int                { return 1 }
func (p *sdkProcess) Exited() <-chan struct{} { return p.exited }
func (p *sdkProcess) Exit() process.Exit      { return process.Exit{At: time.Now()} }
func (p *sdkProcess) Tail() []string          { return nil }
func (p *sdkProcess) Kill()                   { p.Stop(process.Ladder{}) }
func (p *sdkProcess) Stop(process.Ladder) {
	p.end()
	_ = p.conn.Close()
	<-p.exited
}

// sdkLauncher launches what make makes, and remembers the last one.
type sdkLauncher struct {
	make func() *sdk.Plugin
	last atomic.Pointer[sdkProcess]
}

func (l *sdkLauncher) Launch(context.Context, Launch) (Backend, error) {
	host, plugin := net.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	p := &sdkProcess{conn: host, exited: make(chan struct{}), end: cancel}
	go func() { // ends with its context or connection
		defer close(p.exited)
		_ = l.make().ServeConn(ctx, plugin)
		_ = plugin.Close()
	}()
	l.last.Store(p)
	return p, nil
}

// A session that a plugin could not open once is opened by the next request: what was left of it is not in the way. Nor is
// it left when the client goes.
func TestSessionIsOpenedAgain(t *testing.T) {
	for _, later := range []time.Duration{100 * time.Millisecond, time.Minute} { // before and after the plugin is done with it
		bubble(t, []string{"1.0.0"}, func(e *env) {
			var opened, closed atomic.Int32
			e.config.Launcher = &sdkLauncher{make: func() *sdk.Plugin {
				p := sdk.New(name, "1.0.0")
				sdk.Tool(p, "do", "Do.", func(context.Context, struct{}) (string, error) { return "done", nil })
				p.OnSessionOpen(func(*sdk.Session) {
					if opened.Add(1)%2 == 0 {
						time.Sleep(e.slot.cfg.Settings.StartTimeout + time.Second)
					}
				})
				p.OnSessionClose(func(*sdk.Session, sdk.CloseReason) { closed.Add(1) })
				return p
			}}
			e.open(Settings{})
			if r := e.call(e.session(), Read, ""); r.code() == -32001 {
				t.Fatalf("the first session: %v", r.err)
			}
			s := e.session()
			want(t, "while it cannot be opened", int(e.call(s, Read, "").code()), -32001)
			pass(later)
			if r := e.call(s, Read, ""); r.code() == -32001 { // it has no resources, but serves the session
				t.Errorf("%v later: %v", later, r.err)
			}
			left := e.session()
			want(t, "another that cannot be opened", int(e.call(left, Read, "").code()), -32001)
			e.slot.CloseSession(left)
			pass(time.Minute)
			want(t, "opened", opened.Load(), 4)
			want(t, "closed", closed.Load(), 2)
		})
	}
}

// A plugin that is told to end just as its workers become free says of no call that it never ran and then runs it: the
// host would have it run once more.
func TestNothingRunsTwiceWhenAPluginEnds(t *testing.T) {
	twice := 0
	for range 200 {
		bubble(t, []string{"1.0.0"}, func(e *env) {
			var mu sync.Mutex
			ran := map[string]int{}
			type in struct {
				Name string `json:"name"`
				Key  string `json:"key"`
				How  string `json:"how"`
			}
			l := &sdkLauncher{make: func() *sdk.Plugin {
				p := sdk.New(name, "1.0.0", sdk.WithLimits(sdk.Limits{Concurrency: 8, Queue: 100}))
				sdk.Method(p, "plain.do", func(_ context.Context, in in) (string, error) {
					mu.Lock()
					defer mu.Unlock()
					ran[in.Key]++
					if ran[in.Key] == 2 {
						twice++
					}
					return "ok", nil
				})
				sdk.Method(p, "plain.work", func(context.Context, in) (string, error) { time.Sleep(time.Millisecond); return "ok", nil })
				return p
			}}
			e.config.Launcher = l
			e.open(Settings{})
			s := e.plain()
			if r := e.call(s, Once, ""); r.code() != 0 {
				t.Fatal(r.err)
			}
			synctest.Wait()
			for i := range 48 {
				r := e.request(s, Once, "")
				if i < 8 {
					r.req.Method = []byte(`"plain.work"`)
				}
				e.send(r)
			}
			time.AfterFunc(time.Millisecond, l.last.Load().end)
			for _, r := range e.seen {
				<-r.done
			}
			e.seen = nil // these are not the fakes that env.check knows
		})
	}
	want(t, "calls that ran twice", twice, 0)
}
