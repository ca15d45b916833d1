package bridge

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"

	"github.com/sox-host/sox-host/plugin/wire"
)

// InputRequest is one thing that a plugin wants of the client: elicitation/create, sampling/createMessage or
// roots/list. Params may be nil.
type InputRequest struct {
	Key    string
	Method string
	Params []byte
}

// MaxInputs bounds the requests of one input_required that are looked at: 64.
const MaxInputs = 64

// MayAsk reports whether the result of a response may be one that asks for input. It looks at what the scan has
// found, so that the usual result need not be read again.
func MayAsk(env *wire.Envelope) bool {
	return env.InputRequests() != nil || string(wire.Unquote(env.ResultType())) == "input_required"
}

// InputRequired takes a result apart that asks for input: what it wants, and its requestState (raw, nil = none).
// ok is false for any other result. A result without resultType counts too when it has the members of one: the
// official Go SDK lets such results out to legacy clients. A request that is none of the three kinds is kept,
// for the caller to refuse.
func InputRequired(result []byte) (requests []InputRequest, state []byte, ok bool) {
	kind := string(wire.Unquote(wire.Member(result, "resultType")))
	wanted := wire.Member(result, "inputRequests")
	state = wire.Member(result, "requestState")
	if len(state) > 0 && state[0] != '"' {
		state = nil
	}
	isObject := len(wanted) > 0 && wanted[0] == '{'
	switch {
	case kind == "input_required":
	case kind == "" && isObject && string(wire.Member(result, "isError")) != "true":
	default:
		return nil, nil, false
	}
	if isObject {
		wire.EachMember(wanted, func(name []byte, at wire.Span) bool {
			one := wanted[at.Start:at.End]
			requests = append(requests, InputRequest{
				Key:    string(name),
				Method: string(wire.Unquote(wire.Member(one, "method"))),
				Params: wire.Member(one, "params"),
			})
			return len(requests) < MaxInputs
		})
	}
	return requests, state, true
}

// InputResponse is the client's answer to an InputRequest: a raw result.
type InputResponse struct {
	Key    string
	Result []byte
}

// WithInput returns params with the answers to an input_required, for the same method to be called again. state
// is its requestState, raw; nil leaves it out.
func WithInput(params []byte, responses []InputResponse, state []byte) []byte {
	out := copyObject(params, func(name string, value []byte) []byte {
		if name == "inputResponses" || name == "requestState" {
			return nil
		}
		return value
	})
	answers := newObject()
	for _, r := range responses {
		answers.add(r.Key, r.Result)
	}
	out.add("inputResponses", answers.end())
	if state != nil {
		out.add("requestState", state)
	}
	return out.end()
}

// Ask returns the result by which a modern client is asked. serverInfo may be nil.
func Ask(requests []InputRequest, state string, serverInfo []byte) []byte {
	wanted := newObject()
	for _, r := range requests {
		one := newObject()
		one.add("method", wire.AppendQuote(nil, r.Method))
		one.add("params", objectOr(r.Params, "{}"))
		wanted.add(r.Key, one.end())
	}
	out := newObject()
	out.add("resultType", []byte(`"input_required"`))
	out.add("inputRequests", wanted.end())
	out.add("requestState", wire.AppendQuote(nil, state))
	if serverInfo != nil {
		meta := newObject()
		meta.add(MetaPrefix+"serverInfo", serverInfo)
		out.add("_meta", meta.end())
	}
	return out.end()
}

// Input returns what the params of a retry answer: the raw result for a key, nil for one without an answer.
func Input(params []byte, key string) []byte {
	return wire.Member(wire.Member(params, "inputResponses"), key)
}

// State names a call that waits for a client's input.
type State struct {
	Plugin     string
	Generation uint64
	Key        string // of the call
}

// Sealer signs what a client carries for us: it comes back from outside.
type Sealer struct{ Key [32]byte }

// Seal returns the text that stands for a state.
func (s Sealer) Seal(st State) string {
	text := st.Plugin + " " + strconv.FormatUint(st.Generation, 10) + " " + st.Key
	return sealed + base64.RawURLEncoding.EncodeToString(append(s.sum(text), text...))
}

// sealed begins every text of Seal, so that a plugin's own requestState is told from it.
const sealed = "sox1."

// Open returns the state that a text stands for. ours is false for a text that no Sealer made, such as a
// plugin's own; ok is false for one that this Sealer did not make.
func (s Sealer) Open(text string) (st State, ours, ok bool) {
	encoded, ours := strings.CutPrefix(text, sealed)
	if !ours {
		return State{}, false, false
	}
	raw, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil || len(raw) < sha256.Size || !hmac.Equal(raw[:sha256.Size], s.sum(string(raw[sha256.Size:]))) {
		return State{}, true, false
	}
	parts := strings.Split(string(raw[sha256.Size:]), " ")
	if len(parts) != 3 {
		return State{}, true, false
	}
	generation, err := strconv.ParseUint(parts[1], 10, 64)
	return State{Plugin: parts[0], Generation: generation, Key: parts[2]}, true, err == nil
}

func (s Sealer) sum(text string) []byte {
	mac := hmac.New(sha256.New, s.Key[:])
	mac.Write([]byte(text))
	return mac.Sum(nil)
}
