//go:build interop && !windows

package interop

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sox-host/sox-host/integration/internal/rig"
)

// row is one request of the feature set of server-everything.
type row struct {
	method string
	params map[string]any
	era    string // "legacy" for what only that era has
}

func toolRow(name string, arguments map[string]any) row {
	if arguments == nil {
		arguments = map[string]any{}
	}
	return row{method: "tools/call", params: map[string]any{"name": name, "arguments": arguments}}
}

func legacyRow(method string, params map[string]any) row { return row{method, params, "legacy"} }

type object = map[string]any

// features are requests whose answers depend on nothing but the request.
var features = []row{
	{method: "tools/list"},
	{method: "prompts/list"},
	{method: "resources/list"},
	{method: "resources/templates/list"},

	toolRow("echo", object{"message": "héllo \u2028 \u0000 \"quoted\" 😀"}),
	toolRow("echo", object{}),
	toolRow("echo", object{"message": 5}),
	toolRow("get-sum", object{"a": 1.5, "b": -2}),
	toolRow("get-sum", object{"a": "one", "b": 2}),
	toolRow("get-annotated-message", object{"messageType": "error", "includeImage": true}),
	toolRow("get-annotated-message", object{"messageType": "success"}),
	toolRow("get-annotated-message", object{"messageType": "debug", "includeImage": false}),
	toolRow("get-structured-content", object{"location": "New York"}),
	toolRow("get-structured-content", object{"location": "Chicago"}),
	toolRow("get-structured-content", object{"location": "Atlantis"}),
	toolRow("get-tiny-image", nil),
	toolRow("get-resource-links", object{"count": 5}),
	toolRow("get-resource-reference", object{"resourceType": "Text", "resourceId": 3}),
	toolRow("get-resource-reference", object{"resourceType": "Blob", "resourceId": 4}),
	toolRow("gzip-file-as-resource", object{"name": "a.gz", "data": "data:text/plain,hello%20there", "outputType": "resource"}),
	toolRow("gzip-file-as-resource", object{"name": "b.gz", "data": "data:text/plain;base64,aGVsbG8="}),
	{method: "resources/read", params: object{"uri": "demo://resource/session/b.gz"}},
	toolRow("trigger-long-running-operation", object{"duration": 0.05, "steps": 1}),

	{method: "prompts/get", params: object{"name": "simple-prompt"}},
	{method: "prompts/get", params: object{"name": "args-prompt", "arguments": object{"city": "Paris", "state": "Texas"}}},
	{method: "prompts/get", params: object{"name": "args-prompt", "arguments": object{}}},
	{method: "prompts/get", params: object{"name": "completable-prompt", "arguments": object{"department": "Sales", "name": "Eve"}}},
	{method: "prompts/get", params: object{"name": "resource-prompt", "arguments": object{"resourceType": "Text", "resourceId": "1"}}},
	{method: "prompts/get", params: object{"name": "resource-prompt", "arguments": object{"resourceType": "Blob", "resourceId": "2"}}},
	{method: "prompts/get", params: object{"name": "resource-prompt", "arguments": object{"resourceType": "Text", "resourceId": "none"}}},

	{method: "resources/read", params: object{"uri": "demo://resource/dynamic/text/1"}},
	{method: "resources/read", params: object{"uri": "demo://resource/dynamic/blob/2"}},
	{method: "resources/read", params: object{"uri": "demo://resource/dynamic/text/zero"}},
	{method: "resources/read", params: object{"uri": "demo://resource/static/document/features.md"}},

	{method: "completion/complete", params: object{
		"ref": object{"type": "ref/prompt", "name": "completable-prompt"}, "argument": object{"name": "department", "value": "S"}}},
	{method: "completion/complete", params: object{
		"ref": object{"type": "ref/prompt", "name": "completable-prompt"}, "argument": object{"name": "name", "value": ""},
		"context": object{"arguments": object{"department": "Marketing"}}}},
	{method: "completion/complete", params: object{
		"ref": object{"type": "ref/resource", "uri": "demo://resource/dynamic/text/{resourceId}"}, "argument": object{"name": "resourceId", "value": "12"}}},
	{method: "completion/complete", params: object{
		"ref": object{"type": "ref/resource", "uri": "demo://resource/dynamic/blob/{resourceId}"}, "argument": object{"name": "resourceId", "value": "x"}}},

	legacyRow("ping", nil),
	legacyRow("logging/setLevel", object{"level": "warning"}),
	legacyRow("resources/subscribe", object{"uri": "demo://resource/dynamic/text/1"}),
	legacyRow("resources/unsubscribe", object{"uri": "demo://resource/dynamic/text/1"}),
}

// visitFirst makes server-everything want a page to be visited before it does anything.
var visitFirst = object{"name": "trigger-url-elicitation", "arguments": object{"url": "https://example.com/b", "elicitationId": "e2", "errorPath": true}}

// questions are requests for which the server asks its client.
var questions = []row{
	toolRow("trigger-sampling-request", object{"prompt": "the answer", "maxTokens": 5}),
	toolRow("trigger-elicitation-request", nil),
	toolRow("trigger-url-elicitation", object{"url": "https://example.com/a", "message": "open it", "elicitationId": "e1"}),
	{"tools/call", visitFirst, "legacy"}, // the error -32042
	{"tools/call", visitFirst, "legacy"}, // and once more, as if the page had been visited
	toolRow("get-roots-list", nil),
}

// everythingCapabilities make server-everything offer all of its tools but those for tasks.
var everythingCapabilities = object{"sampling": object{}, "elicitation": object{"form": object{}, "url": object{}}, "roots": object{"listChanged": true}}

// compare asks both the same and expects the same answers and the same questions.
func compare(t *testing.T, phase string, direct, through *peer, rows []row) {
	t.Helper()
	before := [2]int{len(direct.questions()), len(through.questions())}
	for _, r := range rows {
		if r.era == "legacy" && through.modern {
			continue
		}
		want, got := direct.ask(r.method, r.params), through.ask(r.method, r.params)
		if want.Error != nil && want.Error.Code == -32002 && through.modern { // MCP 2026-07-28 moved it
			want.Error.Code = -32602
		}
		if w, g := direct.plain(t, want), through.plain(t, got); w != g {
			t.Errorf("%s: %s %v\ndirect:   %s\nthrough: %s", phase, r.method, r.params, w, g)
		}
	}
	asked, passed := direct.questions()[before[0]:], through.questions()[before[1]:]
	if fmt.Sprint(blank(strings.Join(asked, "\n"))) != fmt.Sprint(blank(strings.Join(passed, "\n"))) {
		t.Errorf("%s: the server asks\n%s\nand through the host\n%s", phase, asked, passed)
	}
}

// serveEverything starts server-everything by itself and behind a host, with another plugin beside it.
func serveEverything(t *testing.T, modern bool, capabilities object) (p *rig.Place, direct, through *peer) {
	t.Helper()
	p = rig.NewPlace(t)
	wrap(t, p, "everything", "1.0.0", nil, script(t, everything))
	p.Example("notes", "1.0.0")
	server := p.ServeProgram(node(t), script(t, everything))
	direct = open(t, server, "", false, capabilities)
	// Its timers may keep it from ending with its stdin.
	t.Cleanup(func() { server.Signal(syscall.SIGINT) })
	through = open(t, p.Serve(patientLists...), "everything__", modern, capabilities)
	return p, direct, through
}

// Everything that the server does, it does behind the host: before, during and after an upgrade.
func TestEverythingLegacy(t *testing.T) {
	t.Parallel()
	p, direct, through := serveEverything(t, false, everythingCapabilities)
	all := slices.Concat(features, questions)
	compare(t, "before", direct, through, all)
	expectEnvironment(t, through, "1.0.0")
	expectProgress(t, direct, through)
	expectSubscription(t, through)
	// The table has made resources, and the server said so.
	const made = "demo://resource/session/b.gz"
	through.AwaitMessages("notifications/resources/list_changed", 1)
	if uris := through.List("resources/list", "resources", "uri"); !slices.Contains(uris, made) {
		t.Errorf("the resource %s is not listed: %v", made, uris)
	}

	// These are under way when the new version takes over: one that the client lets wait, one that takes its time.
	asked := through.begin("tools/call", object{"name": "trigger-sampling-request", "arguments": object{"prompt": "hold"}})
	through.AwaitMessages("sampling/createMessage", len(through.Messages("sampling/createMessage"))+1)
	long := through.begin("tools/call", object{
		"name": "trigger-long-running-operation", "arguments": object{"duration": 6, "steps": 3}, "_meta": object{"progressToken": "held"},
	})
	cancelled := through.begin("tools/call", object{"name": "trigger-long-running-operation", "arguments": object{"duration": 60, "steps": 1}})
	through.ask("logging/setLevel", object{"level": "emergency"})

	wrap(t, p, "everything", "1.1.0", nil, script(t, everything))
	upgrade := start(p, "upgrade", "everything")
	p.Await("the new version takes calls", func() bool { return statusOf(t, p, "everything").Version == "1.1.0" })
	through.Cancel(cancelled)
	if s := statusOf(t, p, "everything"); len(s.Draining) != 1 || s.Draining[0].InFlight == 0 {
		t.Errorf("the old version has nothing to finish: %+v", s)
	}
	compare(t, "during", direct, through, all)
	expectEnvironment(t, through, "1.1.0")
	if asked.Answered() {
		t.Error("a call was answered before the client answered the question in it")
	}
	close(through.hold)
	if text := textOf(t, asked.Wait()); !strings.Contains(text, "forty-two") {
		t.Errorf("the call with the question: %s", text)
	}
	if text := textOf(t, long.Wait()); text != "Long running operation completed. Duration: 6 seconds, Steps: 3." {
		t.Errorf("the long call: %s", text)
	}
	finish(t, upgrade)

	// The level was set to "warning" by the table, in the new version too; the server logs subscriptions at "info".
	compare(t, "after", direct, through, all)
	expectSubscription(t, through)
	if cancelled.Answered() {
		t.Errorf("a cancelled call was answered: %s", cancelled.Wait())
	}
	if n := len(through.Messages("notifications/tools/list_changed")); n != 0 {
		t.Errorf("%d list_changed, and the tools are the same", n)
	}
}

// The same from a client of the modern era, which the host translates for: the server has only the legacy one.
func TestEverythingModern(t *testing.T) {
	t.Parallel()
	p, direct, through := serveEverything(t, true, everythingCapabilities)
	compare(t, "before", direct, through, features)
	expectEnvironment(t, through, "1.0.0")
	expectProgress(t, direct, through)
	expectListen(t, through)

	long := through.begin("tools/call", object{
		"name": "trigger-long-running-operation", "arguments": object{"duration": 6, "steps": 3}, "_meta": object{"progressToken": "held"},
	})
	cancelled := through.begin("tools/call", object{"name": "trigger-long-running-operation", "arguments": object{"duration": 60, "steps": 1}})
	p.Await("the calls are running", func() bool { return statusOf(t, p, "everything").InFlight >= 2 })
	sample := object{"name": "trigger-sampling-request", "arguments": object{"prompt": "the answer"}}
	retry, asked := through.withInput(sample, through.Call("tools/call", through.params("tools/call", sample)))
	if !asked {
		t.Error("the client was not asked")
	}
	wrap(t, p, "everything", "1.1.0", nil, script(t, everything))
	upgrade := start(p, "upgrade", "everything")
	p.Await("the new version takes calls", func() bool { return statusOf(t, p, "everything").Version == "1.1.0" })
	through.Cancel(cancelled)
	// The old version has asked, so it gets the answer.
	if text := textOf(t, through.ask("tools/call", retry)); !strings.Contains(text, "forty-two") {
		t.Errorf("the call that was asked before the upgrade and answered after it: %s", text)
	}
	compare(t, "during", direct, through, features)
	expectEnvironment(t, through, "1.1.0")
	if text := textOf(t, long.Wait()); text != "Long running operation completed. Duration: 6 seconds, Steps: 3." {
		t.Errorf("the long call: %s", text)
	}
	finish(t, upgrade)
	compare(t, "after", direct, through, features)
	expectListen(t, through)
	if cancelled.Answered() {
		t.Errorf("a cancelled call was answered: %s", cancelled.Wait())
	}
}

// expectListen opens a subscription of the modern era, hears of updates, and ends it.
func expectListen(t *testing.T, through *peer) {
	t.Helper()
	const uri = "demo://resource/static/document/features.md"
	acknowledged := len(through.Messages("notifications/subscriptions/acknowledged"))
	listen := through.begin("subscriptions/listen", object{"notifications": object{"toolsListChanged": true, "resourceSubscriptions": []string{uri}}})
	ack := through.AwaitMessages("notifications/subscriptions/acknowledged", acknowledged+1)[acknowledged]
	want := fmt.Sprintf(`{"_meta":{"io.modelcontextprotocol/subscriptionId":%s},"notifications":{"resourceSubscriptions":[%q],"toolsListChanged":true}}`, listen.ID, uri)
	if got := canonical(t, ack.Params); got != want {
		t.Errorf("acknowledged %s\nwant %s", got, want)
	}
	updates := len(through.Messages("notifications/resources/updated"))
	through.tool("toggle-subscriber-updates", nil)
	update := through.AwaitMessages("notifications/resources/updated", updates+1)[updates]
	want = fmt.Sprintf(`{"_meta":{"io.modelcontextprotocol/subscriptionId":%s},"uri":%q}`, listen.ID, uri)
	if got := canonical(t, update.Params); got != want {
		t.Errorf("updated %s\nwant %s", got, want)
	}
	through.tool("toggle-subscriber-updates", nil)
	through.Cancel(listen)
	if a := through.ask("server/discover", nil); a.Error != nil {
		t.Errorf("discover: %s", a)
	}
	if listen.Answered() {
		t.Errorf("a cancelled subscription was answered: %s", listen.Wait())
	}
}

// A modern client that asks for log messages with a request gets those that the server writes meanwhile.
func TestEverythingModernLog(t *testing.T) {
	t.Parallel()
	_, _, through := serveEverything(t, true, object{})
	through.ask("tools/call", object{"name": "toggle-simulated-logging", "arguments": object{}, "_meta": object{metaPrefix + "logLevel": "debug"}})
	through.AwaitMessages("notifications/message", 1)
	through.tool("toggle-simulated-logging", nil)
}

// What a legacy server asks its client reaches a modern one as the result of the call, which is then repeated with the answers. The tools answer as
// if they had asked directly.
func TestEverythingModernQuestions(t *testing.T) {
	t.Parallel()
	_, direct, through := serveEverything(t, true, everythingCapabilities)
	compare(t, "questions", direct, through, questions)
	// In the modern era the error by which a server asks for a visit is a question too, so the call goes on after it.
	before := len(through.questions())
	if text := textOf(t, through.ask("tools/call", visitFirst)); !strings.Contains(text, "User completed the URL elicitation flow") {
		t.Errorf("a page to be visited first: %s", text)
	}
	if asked := through.questions()[before:]; len(asked) != 2 || !strings.Contains(asked[0], "https://modelcontextprotocol.io") || !strings.Contains(asked[1], "https://example.com/b") {
		t.Errorf("asked to visit %s", asked)
	}
}

// textOf is the text of a tool's result.
func textOf(t *testing.T, a rig.Answer) string {
	t.Helper()
	r := a.Tool(t)
	var texts []string
	for _, c := range r.Content {
		texts = append(texts, c.Text)
	}
	return strings.Join(texts, "\n")
}

// expectEnvironment looks at what the server was started with: the manifest's variables, those that every plugin gets, and no others.
func expectEnvironment(t *testing.T, through *peer, version string) {
	t.Helper()
	var env map[string]string
	if err := json.Unmarshal([]byte(textOf(t, through.tool("get-env", nil))), &env); err != nil {
		t.Errorf("get-env: %v", err)
	}
	if env["INTEROP_BUILD"] != version {
		t.Errorf("INTEROP_BUILD is %q, want %q", env["INTEROP_BUILD"], version)
	}
	if v, ok := env["GORACE"]; ok { // the host has it
		t.Errorf("a variable of the host reached the server: GORACE=%s", v)
	}
}

// expectProgress compares the reports of a call that takes some time. The last may be dropped by the host when the answer follows too closely.
func expectProgress(t *testing.T, direct, through *peer) {
	t.Helper()
	for _, token := range []any{"a token", 7, 0} {
		params := object{
			"name": "trigger-long-running-operation", "arguments": object{"duration": 0.8, "steps": 4}, "_meta": object{"progressToken": token},
		}
		var reports [2][]string
		for i, p := range []*peer{direct, through} {
			before := len(p.Messages("notifications/progress"))
			a := p.ask("tools/call", params)
			if text := textOf(t, a); text != "Long running operation completed. Duration: 0.8 seconds, Steps: 4." {
				t.Errorf("long running: %s", text)
			}
			for _, m := range p.Messages("notifications/progress")[before:] {
				reports[i] = append(reports[i], canonical(t, m.Params))
			}
		}
		if n := len(reports[1]); n == 0 || n > len(reports[0]) || !slices.Equal(reports[0][:n], reports[1]) {
			t.Errorf("progress %s\nthrough the host %s", reports[0], reports[1])
		}
	}
}

// expectSubscription subscribes, hears of updates and of the log, and unsubscribes.
func expectSubscription(t *testing.T, through *peer) {
	t.Helper()
	const uri = "demo://resource/dynamic/text/9"
	logs := func() int { return len(through.Messages("notifications/message")) }
	through.ask("logging/setLevel", object{"level": "emergency"})
	quiet := logs()
	through.ask("resources/subscribe", object{"uri": uri})
	if logs() != quiet {
		t.Error("a log message below the level that was set")
	}
	through.ask("logging/setLevel", object{"level": "debug"})
	updates := len(through.Messages("notifications/resources/updated"))
	through.tool("toggle-subscriber-updates", nil)
	if m := through.AwaitMessages("notifications/resources/updated", updates+1)[updates]; canonical(t, m.Params) != `{"uri":"`+uri+`"}` {
		t.Errorf("updated: %s", m.Params)
	}
	through.tool("toggle-subscriber-updates", nil)
	through.ask("resources/unsubscribe", object{"uri": uri})
	messages := through.AwaitMessages("notifications/message", quiet+1)
	var m struct{ Level, Logger, Data string }
	if err := json.Unmarshal(messages[len(messages)-1].Params, &m); err != nil || m.Level != "info" || !strings.HasPrefix(m.Logger, "everything") {
		t.Errorf("log message %s, %v", messages[len(messages)-1].Params, err)
	}
	before := logs()
	through.tool("toggle-simulated-logging", nil)
	through.AwaitMessages("notifications/message", before+1)
	through.tool("toggle-simulated-logging", nil)
}
