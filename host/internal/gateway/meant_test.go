package gateway

import (
	"strings"
	"testing"
)

func TestTheNameThatWasMeant(t *testing.T) {
	names := []string{"weather.greet", "weather.forecast", "notes__search", "notes__say", "raw.*"}
	for typed, want := range map[string]string{
		"weather.greeet":  "weather.greet",
		"wether.greet":    "weather.greet", // another plugin, by one letter
		"weather.fore":    "weather.forecast",
		"notes__serach":   "notes__search",
		"notez__search":   "notes__search",
		"weather.sing":    "", // what both begin with says nothing
		"notes__go":       "",
		"raw.":            "",
		"":                "",
		"weather.":        "",
		"weather.greet.x": "weather.greet",
		"weather.greet" + strings.Repeat("t", maxCompared): "",
	} {
		if want != "" {
			want = `: did you mean "` + want + `"?`
		}
		if got := new(Session).meant(typed, names); got != want {
			t.Errorf("%q: %q, want %q", typed, got, want)
		}
		if got := (&Session{command: true}).meant(typed, names); got != "" {
			t.Errorf("%q of a command: %q", typed, got)
		}
	}
}

// A client that mistypes a method, a tool or a prompt is told the name that was meant.
func TestUnknownNamesAreMended(t *testing.T) {
	inWorld(t, "one", func(t *testing.T, w *world) {
		w.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"demo__ehco",`+claim+`}}`,
			`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"dmeo__echo",`+claim+`}}`)
		settle()
		got := strings.Join(w.out.take(), "\n")
		for _, want := range []string{
			`There is no tool \"demo__ehco\" in plugin demo 1.0.0: did you mean \"demo__echo\"? Its tools now: `,
			`"unknown tool \"dmeo__echo\": did you mean \"demo__echo\"?"`,
		} {
			if !strings.Contains(got, want) {
				t.Errorf("no %s in %s", want, got)
			}
		}
	})
}
