package main

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sox-host/sox-host/host"
)

// Every line of help fits, of every command and every topic.
func TestHelpFitsItsWidth(t *testing.T) {
	lines := [][]string{nil, {"help"}}
	for _, cmd := range commands() {
		if !cmd.hidden {
			lines = append(lines, []string{"help", cmd.name})
		}
	}
	for _, topic := range slices.Sorted(maps.Keys(topics())) {
		lines = append(lines, []string{"help", topic})
	}
	for _, args := range lines {
		t.Run(strings.Join(args, "_"), func(t *testing.T) {
			var stdout, stderr strings.Builder
			run(args, strings.NewReader(""), &stdout, &stderr)
			text := stdout.String() + stderr.String()
			if strings.Count(text, "\n") < 5 {
				t.Fatalf("no help but %q", text)
			}
			for line := range strings.Lines(text) {
				if line = strings.TrimSuffix(line, "\n"); utf8.RuneCountInString(line) > helpWidth {
					t.Errorf("%d columns: %s", utf8.RuneCountInString(line), line)
				}
			}
		})
	}
}

// Each command names the codes it can end with, and the topic has all of them.
func TestExitCodesInHelp(t *testing.T) {
	var all strings.Builder
	exitHelp(&all)
	for code := host.ExitDone; code <= host.ExitPending; code++ {
		if meaning := exitMeaning(code); meaning == "" || !strings.Contains(all.String(), meaning) {
			t.Errorf("%d is not in\n%s", code, all.String())
		}
	}
	for _, cmd := range commands() {
		if cmd.hidden {
			continue
		}
		for _, code := range []host.Exit{host.ExitDone, host.ExitUsage} {
			if !slices.Contains(cmd.exits, code) {
				t.Errorf("%s does not name %d", cmd.name, code)
			}
		}
		for code := range cmd.means {
			if !slices.Contains(cmd.exits, code) {
				t.Errorf("%s says what %d means and does not end with it", cmd.name, code)
			}
		}
	}
}

func TestHelpTableWraps(t *testing.T) {
	var out strings.Builder
	table := newHelpTable(&out)
	table.width = 24
	table.row("a", "bb", "one two three four five")
	table.row("aaaa", "b", "six")
	table.row("", "", "averyverylongwordthatdoesnotfit indeed")
	table.print()
	want := `a     bb  one two three
          four five
aaaa  b   six
          averyverylongwordthatdoesnotfit
          indeed
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
