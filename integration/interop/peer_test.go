//go:build interop && !windows

package interop

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/sox-host/sox-host/integration/internal/rig"
	"github.com/sox-host/sox-host/plugin/schema"
)

// peer is a client of raw lines, in front of a server itself or of sox-host with that server as a plugin.
type peer struct {
	*rig.Host
	prefix       string // of names: "everything__" through the host
	modern       bool   // requests carry claims, as in MCP 2026-07-28
	capabilities map[string]any

	hold chan struct{} // closed to let go of sampling requests that mention "hold"

	mu    sync.Mutex
	asked []string // what the server asked its client, in canonical form
	roots []any    // of the client
}

const metaPrefix = "io.modelcontextprotocol/"

// open starts the conversation.
func open(t *testing.T, h *rig.Host, prefix string, modern bool, capabilities map[string]any) *peer {
	t.Helper()
	p := &peer{Host: h, prefix: prefix, modern: modern, capabilities: capabilities, hold: make(chan struct{})}
	p.roots = []any{map[string]any{"uri": "file:///project/one", "name": "one"}, map[string]any{"uri": "file:///project/two"}}
	h.OnRequest(p.serve)
	if !modern {
		h.Initialize(capabilities)
	}
	return p
}

// params are those of a request as this peer has to write them.
func (p *peer) params(method string, params map[string]any) map[string]any {
	out := maps.Clone(params)
	if out == nil {
		out = map[string]any{}
	}
	if method == "tools/call" || method == "prompts/get" {
		out["name"] = p.prefix + fmt.Sprint(out["name"])
	}
	if ref, ok := out["ref"].(map[string]any); ok && ref["name"] != nil {
		ref = maps.Clone(ref)
		ref["name"] = p.prefix + fmt.Sprint(ref["name"])
		out["ref"] = ref
	}
	if p.modern {
		meta, _ := out["_meta"].(map[string]any)
		meta = maps.Clone(meta)
		if meta == nil {
			meta = map[string]any{}
		}
		meta[metaPrefix+"protocolVersion"] = "2026-07-28"
		meta[metaPrefix+"clientInfo"] = map[string]any{"name": "rig", "version": "1.0.0"}
		meta[metaPrefix+"clientCapabilities"] = p.capabilities
		out["_meta"] = meta
	}
	return out
}

// ask sends a request and waits for its answer. A modern one that ends with input_required is repeated with the answers, as often as it takes.
func (p *peer) ask(method string, params map[string]any) rig.Answer {
	a := p.Call(method, p.params(method, params))
	for range maxRounds {
		retry, ok := p.withInput(params, a)
		if !ok {
			break
		}
		a = p.Call(method, p.params(method, retry))
	}
	return a
}

// withInput is a request again, with what its answer wants to know; false if the answer is no input_required.
func (p *peer) withInput(params map[string]any, a rig.Answer) (map[string]any, bool) {
	var r struct {
		Type     string                 `json:"resultType"`
		Requests map[string]rig.Message `json:"inputRequests"`
		State    string                 `json:"requestState"`
	}
	if !p.modern || a.Error != nil || json.Unmarshal(a.Result, &r) != nil || r.Type != "input_required" {
		return nil, false
	}
	retry, responses := maps.Clone(params), map[string]any{}
	for key, m := range r.Requests {
		responses[key], _ = p.serve(m)
	}
	retry["inputResponses"], retry["requestState"] = responses, r.State
	return retry, true
}

// maxRounds bounds how often one request may want input.
const maxRounds = 8

func (p *peer) begin(method string, params map[string]any) *rig.Future {
	return p.Request(method, p.params(method, params))
}

// tool calls a tool by the name that its server gives it.
func (p *peer) tool(name string, arguments map[string]any) rig.Answer {
	if arguments == nil {
		arguments = map[string]any{}
	}
	return p.ask("tools/call", map[string]any{"name": name, "arguments": arguments})
}

// serve answers what the server asks, the same whoever asks.
func (p *peer) serve(m rig.Message) (any, *rig.Error) {
	if bytes.Contains(m.Params, []byte("hold")) {
		<-p.hold
	} else if m.Method != "roots/list" && m.Method != "ping" { // those come when they like
		p.mu.Lock()
		p.asked = append(p.asked, m.Method+" "+p.unattributed(m.Params))
		p.mu.Unlock()
	}
	switch m.Method {
	case "ping":
		return map[string]any{}, nil
	case "roots/list":
		p.mu.Lock()
		defer p.mu.Unlock()
		return map[string]any{"roots": p.roots}, nil
	case "sampling/createMessage":
		return map[string]any{
			"role": "assistant", "model": "none", "stopReason": "endTurn", "content": map[string]any{"type": "text", "text": "forty-two"},
		}, nil
	case "elicitation/create":
		if bytes.Contains(m.Params, []byte(`"url"`)) {
			return map[string]any{"action": "accept"}, nil
		}
		return map[string]any{"action": "accept", "content": map[string]any{"name": "Ada", "check": true, "integer": 7}}, nil
	}
	return nil, &rig.Error{Code: -32601, Message: "unknown"}
}

// unattributed is a question in canonical form, without the name of the plugin that the host puts into it, and without what only one era has.
func (p *peer) unattributed(raw json.RawMessage) string {
	var params map[string]any
	if err := json.Unmarshal(raw, &params); err != nil {
		return err.Error()
	}
	if p.prefix != "" {
		plugin := strings.TrimSuffix(p.prefix, "__")
		meta, _ := params["_meta"].(map[string]any)
		if meta["sox/plugin"] != plugin {
			return "a question that does not say which plugin asks"
		}
		delete(meta, "sox/plugin")
		if len(meta) == 0 {
			delete(params, "_meta")
		}
		if message, ok := params["message"].(string); ok {
			own, ok := strings.CutPrefix(message, "["+plugin+"] ")
			if !ok {
				return "a message that does not say which plugin asks"
			}
			params["message"] = own
		}
	}
	raw, err := json.Marshal(params)
	if err == nil {
		raw, err = schema.Canonical(nil, raw)
	}
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// questions are what the server has asked so far.
func (p *peer) questions() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.asked...)
}

// clock is the time of day as the servers write it, and identity an identifier that they make up.
var (
	clock    = regexp.MustCompile(`\d{1,2}:\d{2}:\d{2}( [AP]M)?`)
	identity = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
)

// lists are the members of results that hold entries of one plugin each, and what tells whose.
var lists = map[string]string{
	"tools": "name", "prompts": "name", "resources": "uri", "resourceTemplates": "uriTemplate",
}

// plain brings an answer into the form that it has without a host in between and in the legacy era: canonical JSON, without the prefix of names, what
// belongs to other plugins and what the modern era adds. The time of day and identifiers are blanked, since they differ from call to call.
func (p *peer) plain(t *testing.T, a rig.Answer) string {
	t.Helper()
	if a.Error != nil {
		return canonical(t, map[string]any{"error": map[string]any{"code": a.Error.Code, "message": blank(strings.ReplaceAll(a.Error.Message, p.prefix, ""))}})
	}
	var result map[string]any
	if err := json.Unmarshal(a.Result, &result); err != nil {
		t.Errorf("the result is no object: %s", a)
	}
	if p.modern {
		if result["resultType"] != "complete" {
			t.Errorf("a modern result of the type %v", result["resultType"])
		}
		delete(result, "resultType")
		delete(result, "ttlMs")
		delete(result, "cacheScope")
		if meta, ok := result["_meta"].(map[string]any); ok {
			delete(meta, metaPrefix+"serverInfo")
			if len(meta) == 0 {
				delete(result, "_meta")
			}
		}
	}
	for list, key := range lists {
		entries, ok := result[list].([]any)
		if !ok {
			continue
		}
		var own []any
		for _, entry := range entries {
			e, _ := entry.(map[string]any)
			name := fmt.Sprint(e[key])
			execution, _ := e["execution"].(map[string]any)
			switch {
			case execution["taskSupport"] == "required": // the host passes no tasks on, so it leaves out what needs them
				continue
			case key == "name" && !strings.HasPrefix(name, p.prefix):
				continue
			case key == "name":
				e["name"] = strings.TrimPrefix(name, p.prefix)
			case !strings.HasPrefix(name, "demo://"), strings.HasPrefix(name, "demo://resource/session/"):
				continue // of another plugin; made by an earlier call
			}
			own = append(own, e)
		}
		result[list] = own
	}
	return canonical(t, walk(result))
}

// walk blanks every text in a value.
func walk(v any) any {
	switch v := v.(type) {
	case string:
		return blank(v)
	case []any:
		for i := range v {
			v[i] = walk(v[i])
		}
	case map[string]any:
		for name, value := range v {
			if blob, ok := value.(string); ok && name == "blob" {
				if raw, err := base64.StdEncoding.DecodeString(blob); err == nil {
					value = string(raw)
				}
			}
			v[name] = walk(value)
		}
	}
	return v
}

func blank(text string) string {
	return identity.ReplaceAllString(clock.ReplaceAllString(text, "TIME"), "ID")
}

func canonical(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	text, err := schema.Canonical(nil, raw)
	if err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return string(text)
}
