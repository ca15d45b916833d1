package wrap

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sox-host/sox-host/plugin/rpc"
	"github.com/sox-host/sox-host/plugin/wire"
)

// What a server answers under a wrong id, or twice, answers nothing else; the right answer is still taken.
func TestAnswers_that_belong_to_nothing(t *testing.T) {
	const right = `{"jsonrpc":"2.0","id":%ID%,"result":{"right":true}}` + "\n"
	for name, text := range map[string]string{
		"another_number":   `{"jsonrpc":"2.0","id":4711,"result":{}}` + "\n" + right,
		"a_string":         `{"jsonrpc":"2.0","id":"%ID%","result":{}}` + "\n" + right,
		"a_fraction":       `{"jsonrpc":"2.0","id":%ID%.0,"result":{}}` + "\n" + right,
		"far_out":          `{"jsonrpc":"2.0","id":99999999999999999999999999,"result":{}}` + "\n" + right,
		"negative":         `{"jsonrpc":"2.0","id":-%ID%,"error":{"code":1,"message":"x"}}` + "\n" + right,
		"twice":            right + `{"jsonrpc":"2.0","id":%ID%,"result":{"right":false}}` + "\n",
		"first_a_fault":    `{"jsonrpc":"2.0","id":4711,"result":{},"error":{}}` + "\n" + right,
		"a_request_of_it":  `{"jsonrpc":"2.0","id":%ID%,"method":"ping"}` + "\n" + right,
		"an_open_question": `{"jsonrpc":"2.0","id":%ID%,"method":"roots/list"}` + "\n" + right,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{Start: says(text).start})
			r.open(1, wire.RevisionLegacy)
			if got := r.must(1, "tools/call", "{}"); got != `{"right":true}` {
				t.Errorf("answered %s", got)
			}
			if got := r.must(1, "tools/list", ""); got != `{"usable":true}` {
				t.Errorf("the next request is answered %s", got)
			}
			if late := r.conn.Stats().Late; late != 0 {
				t.Errorf("%d late answers reached the host", late)
			}
		})
	}
}

// The last words of a server count although their line has no end.
func TestAnswer_without_a_line_end_at_the_end(t *testing.T) {
	s := fakes(func(p *fake) int {
		p.each(func(m message) {
			fmt.Fprintf(p.outW, `{"jsonrpc":"2.0","id":%s,"result":{"last":1}}`, m.ID)
			_ = p.inR.Close()
		})
		return 0
	})
	r := newRig(t, Config{Start: s.start})
	r.open(1, wire.RevisionLegacy)
	if got := r.must(1, "tools/call", "{}"); got != `{"last":1}` {
		t.Error(got)
	}
}

// A server that closes its stdout cannot answer any more, so it is ended though it runs on.
func TestStdout_closed_by_a_server_that_runs_on_ends_it(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fakes(func(p *fake) int {
			p.each(func(message) { _ = p.outW.Close() })
			<-p.killed
			return 1
		})
		r := newRig(t, Config{Start: s.start})
		r.open(1, wire.RevisionLegacy)
		began := time.Now()
		_, end := r.start(1, "tools/call", "{}")
		if reply := <-end; reply.Phase != rpc.Sent {
			t.Errorf("the call ended %v", reply.Phase)
		}
		if took := time.Since(began); took > exitWait+afterCrash.Close+afterCrash.Term+outputWait {
			t.Errorf("it took %v", took)
		}
		<-r.b.Exited()
	})
}
