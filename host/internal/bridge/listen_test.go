package bridge

import "testing"

func TestListens(t *testing.T) {
	const all = `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true}}`
	for _, tt := range []struct {
		name, capabilities string
		uris               []string
		want               string
	}{
		{"everything", all, []string{"a", `b"<&`}, `{"promptsListChanged":true,"resourceSubscriptions":["a","b\"<&"],"resourcesListChanged":true,"toolsListChanged":true}`},
		{"no_resource", all, nil, `{"promptsListChanged":true,"resourcesListChanged":true,"toolsListChanged":true}`},
		{"cannot_subscribe", `{"tools":{"listChanged":true},"resources":{}}`, []string{"a"}, `{"toolsListChanged":true}`},
		{"nothing", `{"tools":{"listChanged":false},"resources":{"subscribe":1}}`, []string{"a"}, ""},
	} {
		if got := string(ListenFilter([]byte(tt.capabilities), tt.uris)); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
	filter := []byte(`{"toolsListChanged":true,"resourceSubscriptions":["a"]}`)
	ack, uris := Acknowledged([]byte(`"l:1"`), filter, []byte(all))
	if want := `{"_meta":{"io.modelcontextprotocol/subscriptionId":"l:1"},"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a"]}}`; string(ack) != want || len(uris) != 1 || string(uris[0]) != `"a"` {
		t.Errorf("acknowledged %s and %q", ack, uris)
	}
	ack, uris = Acknowledged([]byte("3"), filter, nil)
	if want := `{"_meta":{"io.modelcontextprotocol/subscriptionId":3},"notifications":{"toolsListChanged":true}}`; string(ack) != want || uris != nil {
		t.Errorf("acknowledged %s and %q", ack, uris)
	}
}

// One listen at a time, with what is wanted last; a filter that the server does not want is asked for once.
func TestListening(t *testing.T) {
	var l Listening
	step := func(what string, got, want ListenStep) {
		t.Helper()
		if got != want {
			t.Errorf("%s: step %d, want %d", what, got, want)
		}
	}
	step("nothing wanted", l.Want(""), ListenOn)
	step("the first", l.Want("a"), ListenOpen)
	step("the same again", l.Want("a"), ListenOn)
	step("another", l.Want("b"), ListenEnd)
	step("a third, before the first has ended", l.Want("c"), ListenOn)
	if !l.Ending() {
		t.Error("a cancelled listen is not ending")
	}
	l.Ended(true)
	step("the third, after the first", l.Want("c"), ListenOpen)
	l.Ended(true) // by the server
	step("what the server has ended", l.Want("c"), ListenOn)
	step("something else", l.Want("a"), ListenOpen)
	step("nothing any more", l.Want(""), ListenEnd)
	l.Ended(false)
	step("nothing after the end", l.Want(""), ListenOn)
	step("what was ended long ago", l.Want("c"), ListenOpen)
	l.Ended(false) // it could not be sent
	step("what could not be sent", l.Want("c"), ListenOpen)
}
