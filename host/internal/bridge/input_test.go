package bridge

import "testing"

func TestInputRequired(t *testing.T) {
	for _, tt := range []struct {
		name, result string
		ok           bool
		keys         int
		state        string
	}{
		{"asks", `{"resultType":"input_required","inputRequests":{"a":{"method":"roots/list"}},"requestState":"s"}`, true, 1, `"s"`},
		{"only_to_be_called_again", `{"resultType":"input_required","requestState":"s"}`, true, 0, `"s"`},
		{"leaked_without_a_type", `{"content":[],"requestState":"st","inputRequests":{"k2":{"method":"elicitation/create"}}}`, true, 1, `"st"`},
		{"a_result_that_mentions_it", `{"content":[{"type":"text","text":"input_required"}]}`, false, 0, ""},
		{"complete_whatever_else_it_has", `{"resultType":"complete","inputRequests":{"a":{}}}`, false, 0, ""},
		{"a_state_that_is_no_string", `{"resultType":"input_required","inputRequests":{},"requestState":7}`, true, 0, ""},
		{"requests_that_are_no_object", `{"resultType":"input_required","inputRequests":[1]}`, true, 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			requests, state, ok := InputRequired([]byte(tt.result))
			if ok != tt.ok || len(requests) != tt.keys || string(state) != tt.state {
				t.Errorf("got %v, %q, %v", requests, state, ok)
			}
		})
	}
}

func TestSealer(t *testing.T) {
	s := Sealer{Key: [32]byte{1}}
	want := State{Plugin: "notes", Generation: 7, Key: "3.1"}
	text := s.Seal(want)
	if got, ours, ok := s.Open(text); !ours || !ok || got != want {
		t.Errorf("Open = %+v, %v, %v", got, ours, ok)
	}
	if _, ours, _ := s.Open("the plugin's own"); ours {
		t.Error("a foreign state counts as ours")
	}
	if _, ours, ok := (Sealer{}).Open(text); !ours || ok {
		t.Error("another host's state is accepted")
	}
	for i := len(sealed); i < len(text); i++ {
		changed := []byte(text)
		changed[i] ^= 1
		if st, _, ok := s.Open(string(changed)); ok && st != want {
			t.Fatalf("a changed state is accepted as %+v", st)
		}
	}
}
