package gateway

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/sox-host/sox-host/plugin/wire"
)

// Whatever the others list, a plugin that needs no more than its part of the first page stands there whole. Nothing is
// lost or doubled, and what one plugin lists keeps its order.
func TestFirstPageIsShared(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		lists := make([][][]byte, 1+rng.IntN(8))
		for i := range lists {
			for n := range rng.IntN(60) {
				lists[i] = append(lists[i], fmt.Appendf(nil, `"%d.%d%s"`, i, n, bytes.Repeat([]byte("x"), rng.IntN(40))))
			}
		}
		room := 50 + rng.IntN(3000)
		ordered, first := fairly(lists, room)
		used, of := 0, make([][][]byte, len(lists))
		for n, element := range ordered {
			var i int
			if _, err := fmt.Sscanf(string(element), `"%d.`, &i); err != nil {
				t.Fatal(err)
			}
			of[i] = append(of[i], element)
			if n < sum(first) {
				used += len(element) + 1
			}
		}
		if used > room {
			t.Fatalf("the first page has %d bytes of %d", used, room)
		}
		for i, list := range lists {
			if !slices.EqualFunc(of[i], list, bytes.Equal) {
				t.Fatalf("list %d is not what it was", i)
			}
			size := len(list)
			for _, element := range list {
				size += len(element)
			}
			if size <= room/len(lists) && first[i] != len(list) {
				t.Fatalf("list %d of %d bytes needs less than a part of %d, and has %d of %d on the first page", i, size, room, first[i], len(list))
			}
		}
	}
}

func sum(numbers []int) (n int) {
	for _, one := range numbers {
		n += one
	}
	return n
}

// A plugin with very many tools pushes nobody off the first page, and one entry that no line could carry takes nobody
// along. What is not shown at first, or not at all, is said in status.
func TestCrowdedListLeavesRoomForOthers(t *testing.T) {
	inWorld(t, "crowd", func(t *testing.T, w *world) {
		w.send(`{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{}}}`)
		settle()
		w.out.take()
		var pages [][]string
		cursor := ""
		for len(pages) == 0 || cursor != "" {
			w.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/list","params":{%s}}`, len(pages), cursor))
			line := last(w.out.takeNow(w.session))
			if len(line) > 3000 {
				t.Errorf("a line of %d bytes", len(line))
			}
			result := wire.Member([]byte(line), "result")
			var page []string
			wire.EachElement(wire.Member(result, "tools"), func(raw []byte) bool {
				page = append(page, string(wire.Unquote(wire.Member(raw, "name"))))
				return true
			})
			if len(page) == 0 {
				t.Fatalf("an empty page: %.300q", line)
			}
			pages = append(pages, page)
			cursor = ""
			if next := wire.Member(result, "nextCursor"); next != nil {
				cursor = `"cursor":` + string(next)
			}
		}
		for _, name := range []string{"small__one", "small__two", "small__three", "big__tool_0", "big__tool_1"} {
			if !slices.Contains(pages[0], name) {
				t.Errorf("the first page lacks %s: %v", name, pages[0])
			}
		}
		all := slices.Concat(pages...)
		if slices.Sort(all); len(all) != 203 || len(slices.Compact(all)) != 203 {
			t.Errorf("%d entries on %d pages", len(all), len(pages))
		}
		onFirst := 0
		for _, name := range pages[0] {
			if strings.HasPrefix(name, "big__") {
				onFirst++
			}
		}
		expect := map[string][]string{"big": {"tools/list: ", "entries are not on its first page"}, "small": {`"huge" is left out`, "--max-output-bytes"}}
		for plugin, parts := range expect {
			problems := w.gw.Problems(plugin)
			if len(problems) != 1 {
				t.Fatalf("problems of %s: %q", plugin, problems)
			}
			for _, part := range parts {
				if !strings.Contains(problems[0], part) {
					t.Errorf("problem of %s: %q lacks %q", plugin, problems[0], part)
				}
			}
		}
		w.send(`{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":"small__huge"}}`)
		if got := last(w.out.takeNow(w.session)); !strings.Contains(got, "There is no tool") {
			t.Errorf("a tool that is left out was called: %.300q", got)
		}
	})
}
