package history

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// at is a moment of a history.
func at(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// good is a history of two plugins, with a switch of one of them in the middle, that keeps every promise.
func good() *History {
	h := &History{
		First: map[string]string{"kit": "1.0.0", "aux": "1.0.0"},
		Lists: map[string]map[string][]string{
			"kit": {"1.0.0": {"echo"}, "1.1.0": {"echo", "fresh"}},
			"aux": {"1.0.0": {"tick"}},
		},
		Switches: []Switch{{Plugin: "kit", To: "1.1.0", Began: at(100), Ended: at(120)}},
		Notices:  []time.Duration{at(112)},
		Listings: []Listing{
			{at(10), at(11), map[string][]string{"kit": {"echo"}, "aux": {"tick"}}},
			{at(113), at(114), map[string][]string{"kit": {"echo", "fresh"}, "aux": {"tick"}}},
		},
		UpgradesOnly: true,
	}
	add := func(n int, plugin string, kind Kind, from, to int, version string) {
		h.Ops = append(h.Ops, &Op{
			Nonce: fmt.Sprintf("n%d", n), ID: fmt.Sprint(n), Plugin: plugin, Kind: kind,
			Invoked: at(from), Answered: at(to), Answers: 1, Outcome: OK, Version: version,
		})
		if kind != Read {
			h.Ledger = append(h.Ledger, Entry{fmt.Sprintf("n%d", n), version, "1"})
		}
	}
	add(1, "kit", Once, 1, 5, "1.0.0")
	add(2, "kit", Once, 90, 300, "1.0.0") // drains
	add(3, "kit", Read, 105, 108, "1.0.0")
	add(4, "kit", Once, 110, 111, "1.1.0")
	add(5, "kit", Idempotent, 130, 131, "1.1.0")
	add(6, "aux", Once, 131, 140, "1.0.0")
	return h
}

func TestGoodHistory(t *testing.T) {
	if found := good().Check(); len(found) > 0 {
		t.Errorf("a history without fault: %v", found)
	}
}

// Each planted fault is found, by the invariant it breaks, and by no other one.
func TestPlantedViolations(t *testing.T) {
	for name, plant := range map[string]struct {
		invariant string
		fault     func(h *History)
	}{
		"lost":                        {"I1", func(h *History) { h.Ops[0].Answers, h.Ops[0].Outcome = 0, None }},
		"answered_twice":              {"I2", func(h *History) { h.Ops[0].Answers = 2 }},
		"cancelled_answered_twice":    {"I2", func(h *History) { h.Ops[0].Cancelled, h.Ops[0].Answers = true, 2 }},
		"never_asked":                 {"I2", func(h *History) { h.Strays = []string{`"x"`} }},
		"executed_twice":              {"I3", func(h *History) { h.Ledger = append(h.Ledger, h.Ledger[0]) }},
		"ok_and_not_executed":         {"I4", func(h *History) { h.Ledger = h.Ledger[1:] }},
		"idempotent_and_not_executed": {"I4", func(h *History) { h.Ledger = append(h.Ledger[:3:3], h.Ledger[4:]...) }},
		"not_run_and_executed":        {"I4", func(h *History) { h.UpgradesOnly = false; h.Ops[0].Outcome = NotRun }},
		"executed_and_never_asked":    {"I4", func(h *History) { h.Ledger = append(h.Ledger, Entry{"n99", "1.0.0", "1"}) }},
		"bad_line":                    {"I5", func(h *History) { h.BadLines = []string{"half a line"} }},
		"id_through_float":            {"I6", func(h *History) { h.Strays = []string{"2.0"} }},
		"id_changed_type":             {"I6", func(h *History) { h.Strays = []string{`"2"`} }},
		"old_generation_after_switch": {"I7", func(h *History) { h.Ops[4].Version = "1.0.0" }},
		"new_generation_before":       {"I7", func(h *History) { h.Ops[0].Version = "1.1.0" }},
		"version_that_never_was":      {"I7", func(h *History) { h.Ops[0].Version = "9.9.9" }},
		"back_during_the_switch": {"I7", func(h *History) {
			h.Ops[2].Version, h.Ops[3].Version = "1.1.0", "1.0.0" // one after the other, within the time of the switch
		}},
		"failed_version_answers": {"I7", func(h *History) {
			h.Switches = append(h.Switches, Switch{Plugin: "aux", To: "2.0.0", Began: at(130), Ended: at(140), Failed: true})
			h.Ops[5].Version = "2.0.0"
		}},
		"list_mixes_generations": {"I8", func(h *History) { h.Listings[1].Tools["kit"] = []string{"fresh"} }},
		"list_too_short":         {"I8", func(h *History) { delete(h.Listings[0].Tools, "aux") }},
		"list_in_another_order":  {"I8", func(h *History) { h.Listings[1].Tools["kit"] = []string{"fresh", "echo"} }},
		"list_too_new":           {"I8", func(h *History) { h.Listings[0].Tools["kit"] = []string{"echo", "fresh"} }},
		"list_old_after_switch": {"I8", func(h *History) {
			h.Listings[1] = Listing{at(130), at(131), map[string][]string{"kit": {"echo"}, "aux": {"tick"}}}
		}},
		"list_old_after_notice": {"I8", func(h *History) { h.Listings[1].Tools["kit"] = []string{"echo"} }},
		"no_notice":             {"I8", func(h *History) { h.Notices, h.Listings = nil, h.Listings[:1] }},
		"two_notices":           {"I8", func(h *History) { h.Notices = append(h.Notices, at(113)) }},
		"notice_without_change": {"I8", func(h *History) {
			h.Switches = nil
			h.Listings = h.Listings[:1]
			h.Ops = h.Ops[:3]
			h.Ledger = h.Ledger[:2]
		}},
		"error_in_upgrades_only":   {"I9", func(h *History) { h.Ops[2].Outcome = Failed }},
		"unknown_in_upgrades_only": {"I9", func(h *History) { h.Ops[0].Outcome = Unknown }},
	} {
		t.Run(name, func(t *testing.T) {
			h := good()
			plant.fault(h)
			found := h.Check()
			if len(found) == 0 {
				t.Fatal("not found")
			}
			for _, v := range found {
				if v.Invariant != plant.invariant {
					t.Errorf("%v, want only %s", v, plant.invariant)
				}
			}
		})
	}
}

// What is allowed is not reported.
func TestAllowed(t *testing.T) {
	for name, change := range map[string]func(h *History){
		"cancelled_without_answer": func(h *History) { h.Ops[0].Cancelled, h.Ops[0].Answers, h.Ops[0].Outcome = true, 0, None },
		"unknown_and_executed":     func(h *History) { h.UpgradesOnly = false; h.Ops[0].Outcome = Unknown },
		"unknown_and_not_executed": func(h *History) { h.UpgradesOnly = false; h.Ops[0].Outcome = Unknown; h.Ledger = h.Ledger[1:] },
		"listed_before_the_notice": func(h *History) { h.Notices = nil },
		"idempotent_twice":         func(h *History) { h.Ledger = append(h.Ledger, h.Ledger[3]) },
		"either_while_switching":   func(h *History) { h.Ops[3].Version = "1.0.0" },
		"old_list_while_switching_before_notice": func(h *History) {
			h.Listings[1] = Listing{at(105), at(106), map[string][]string{"kit": {"echo"}, "aux": {"tick"}}}
		},
		"uncertain_switch_without_notice": func(h *History) {
			h.Switches = append(h.Switches,
				Switch{Plugin: "kit", To: "1.0.0", Began: at(400), Ended: at(410), Uncertain: true},
				Switch{Plugin: "kit", To: "1.1.0", Began: at(400), Ended: at(410), Uncertain: true})
			h.Ops = append(h.Ops,
				&Op{Nonce: "n7", ID: "7", Plugin: "kit", Invoked: at(401), Answered: at(405), Answers: 1, Outcome: OK, Version: "1.0.0"},
				&Op{Nonce: "n8", ID: "8", Plugin: "kit", Invoked: at(420), Answered: at(421), Answers: 1, Outcome: OK, Version: "1.1.0"})
		},
		"roll_back_repeats_a_version": func(h *History) {
			h.Switches = append(h.Switches, Switch{Plugin: "kit", To: "1.0.0", Began: at(400), Ended: at(410)})
			h.Notices = append(h.Notices, at(405))
			h.Ops = append(h.Ops, &Op{Nonce: "n7", ID: "7", Plugin: "kit", Invoked: at(420), Answered: at(421), Answers: 1, Outcome: OK, Version: "1.0.0"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := good()
			change(h)
			if found := h.Check(); len(found) > 0 {
				t.Errorf("reported: %v", found)
			}
		})
	}
}

func TestManyViolationsAreCounted(t *testing.T) {
	h := &History{}
	for i := range 1000 {
		h.Ops = append(h.Ops, &Op{Nonce: fmt.Sprint(i), ID: fmt.Sprint(i)})
	}
	found := h.Check()
	if len(found) != maxViolations+1 || !strings.Contains(found[maxViolations].Text, "980 more") {
		t.Errorf("%d violations, the last is %v", len(found), found[len(found)-1])
	}
}

func TestCheckLine(t *testing.T) {
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{}}`,
		`{"jsonrpc":"2.0","id":"a","error":{"code":1,"message":"m"}}`,
		`{"jsonrpc":"2.0","method":"m"}`,
		`{"jsonrpc":"2.0","id":1,"method":"m","params":{}}`,
		`{"jsonrpc":"2.0","id":1,"result":null}`,
		`{"jsonrpc":"2.0","id":1,"result":"\ud800"}`,
	} {
		if _, err := CheckLine([]byte(line)); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	for name, line := range map[string]string{
		"cut":                  `{"jsonrpc":"2.0","id":1,"resu`,
		"two_objects":          `{"jsonrpc":"2.0","id":1,"result":{}}{}`,
		"log_line":             `2026-01-01 [INFO] hello`,
		"array":                `[{"jsonrpc":"2.0","id":1,"result":{}}]`,
		"name_twice":           `{"jsonrpc":"2.0","id":1,"id":2,"result":{}}`,
		"name_twice_inside":    `{"jsonrpc":"2.0","id":1,"result":{"a":1,"a":2}}`,
		"no_version":           `{"id":1,"result":{}}`,
		"null_id":              `{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}`,
		"neither":              `{"jsonrpc":"2.0","id":1}`,
		"both":                 `{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"m"}}`,
		"answer_with_a_method": `{"jsonrpc":"2.0","id":1,"method":"m","result":{}}`,
		"result_without_id":    `{"jsonrpc":"2.0","result":{}}`,
		"not_utf8":             "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"\xff\"}",
		"raw_control":          "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"\x01\"}",
	} {
		if _, err := CheckLine([]byte(line)); err == nil {
			t.Errorf("%s is accepted: %s", name, line)
		}
	}
}

// A recorded history is what the calls to the recorder say.
func TestRecorder(t *testing.T) {
	r := NewRecorder(map[string]string{"kit": "1.0.0"})
	op := r.Invoke("a", "1", "kit", Once)
	r.Answer("1", OK, "1.0.0", "")
	r.Answer("1", Failed, "", "late")
	r.Answer("9", OK, "", "")
	cancelled := r.Invoke("b", "2", "kit", Once)
	r.Cancel(cancelled)
	r.Switch("kit", "1.1.0", func() bool { return false })
	if op.Answers != 2 || op.Outcome != OK || !cancelled.Cancelled {
		t.Errorf("ops: %+v %+v", op, cancelled)
	}
	h := r.History()
	if len(h.Strays) != 1 || !h.Switches[0].Failed || h.Switches[0].Ended < h.Switches[0].Began {
		t.Errorf("history: %+v", h)
	}
}

func TestReadLedger(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a 1.0.0 12\nb 1.1.0 13\n")
	entries, err := ReadLedger(path)
	if err != nil || len(entries) != 2 || entries[1] != (Entry{"b", "1.1.0", "13"}) {
		t.Errorf("%v, %v", entries, err)
	}
	write("a 1.0.0 12b 1.1.0 13\n")
	if _, err := ReadLedger(path); err == nil {
		t.Error("a torn line is accepted")
	}
}
