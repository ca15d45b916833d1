// Soak drives a real `sox-host serve` with real plugins for a while, breaks what can break, and decides afterwards whether every promise was kept.
//
//	go run ./integration/soak -duration 60s -seed 7
//
// The run is a row of rounds, each with one host and one client of it. In a calm round there is nothing but upgrades, and no call may fail. In a
// storm processes are killed, stopped, flooded and replaced, and each call has to end in a way that is true. A round ends by the end of its input,
// by a signal, or by SIGKILL in the middle of everything.
//
// What happened is judged by package history: clients record what they asked and were told, plugins write a ledger of what they did, the injector
// records what it switched. The invariants it decides and those that are decided here (I10 to I15) have the numbers of the project's list:
//
//	I10  never two instances of a plugin that must be alone
//	I11  nothing that a killed host started is left after a second, or if a guard was killed with it, once the next host runs
//	I12  descriptors, goroutines, processes and sockets come back to where they were
//	I13  every request is answered within its bound
//	I14  the host's memory stays below 256 MiB
//	I15  the counters of status agree with what the client saw
//	G7   the next host runs what was committed
//	G16  a host whose input ended, or that was asked to end, is gone in time
//
// A run in which a fault of the list never happened fails too: it would prove nothing about it. The seed decides every fault and its order; it is
// printed first, and each decision is in the log. The exit code is 0 if all is well, 1 if not, 2 for a wrong call.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"time"
)

// config is what the command line says.
type config struct {
	duration time.Duration
	seed     uint64
	host     string // path of sox-host; "" = built from this module
	tags     string // for that build
	json     string // where the report goes
	keep     bool
	verbose  bool
	partial  bool // a fault that never fired is no failure
}

func main() {
	var c config
	flag.DurationVar(&c.duration, "duration", time.Minute, "how long to go on; faults need about a minute to have happened all")
	flag.Uint64Var(&c.seed, "seed", 0, "decides every fault; 0 takes one at random")
	flag.StringVar(&c.host, "host", "", "`path` of a sox-host to test (default: build this module's)")
	flag.StringVar(&c.tags, "tags", "", "build `tags` for sox-host, such as planted_replay_all")
	flag.StringVar(&c.json, "json", "-", "`file` for the report; - is standard output")
	flag.BoolVar(&c.keep, "keep", false, "keep the folder of the run even if all is well")
	flag.BoolVar(&c.verbose, "v", false, "print events as they happen")
	flag.BoolVar(&c.partial, "partial", false, "accept that some faults never happened, for short runs")
	flag.Parse()
	if flag.NArg() > 0 || c.duration <= 0 {
		fmt.Fprintln(os.Stderr, "soak: takes no arguments, and a duration above zero")
		os.Exit(2)
	}
	if runtime.GOOS != "linux" {
		fmt.Fprintln(os.Stderr, "soak: needs Linux: it finds processes that were left behind by /proc")
		os.Exit(2)
	}
	if c.seed == 0 {
		c.seed = rand.Uint64N(1 << 32)
	}
	fmt.Fprintf(os.Stderr, "seed %d\n", c.seed)
	report, err := soak(c)
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
	fmt.Println(report.line())
	if err := report.write(c.json); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
	if !report.OK {
		os.Exit(1)
	}
}

// report is the result of a run.
type report struct {
	OK       bool          `json:"ok"`
	Seed     uint64        `json:"seed"`
	Took     time.Duration `json:"took_ns"`
	Rounds   int           `json:"rounds"`
	Requests int           `json:"requests"`
	Outcomes countMap      `json:"outcomes"`
	Commands countMap      `json:"commands"` // of the command line, by what became of them
	Faults   countMap      `json:"faults"`
	Seen     countMap      `json:"seen"` // situations
	Worst    worst         `json:"worst"`
	Never    []string      `json:"never"` // faults and situations of the list that did not happen
	Broken   []violation   `json:"violations"`
	Log      string        `json:"log,omitempty"`
}

type countMap map[string]int

// worst are the largest values of what is bounded.
type worst struct {
	HostMiB    int           `json:"host_mib"`
	Orphans    time.Duration `json:"orphans_ns"`  // from the SIGKILL of a host to the end of the last process
	Exit       time.Duration `json:"exit_ns"`     // from the end of input to the host's
	Recovery   time.Duration `json:"recovery_ns"` // from a fault to the next answer
	Answer     time.Duration `json:"answer_ns"`
	Stall      time.Duration `json:"stall_ns"` // of this program itself: what the machine added to every other number
	Load       float64       `json:"load"`
	Goroutines int           `json:"goroutines"`
}

// violation is one broken promise with what happened around it.
type violation struct {
	Round     int      `json:"round"`
	Invariant string   `json:"invariant"`
	Text      string   `json:"text"`
	Around    []string `json:"around,omitempty"`
}

// line is the summary.
func (r *report) line() string {
	verdict := "ok"
	if !r.OK {
		verdict = fmt.Sprintf("FAILED: %d violations, %d never happened", len(r.Broken), len(r.Never))
	}
	commands, faults := 0, 0
	for _, n := range r.Commands {
		commands += n
	}
	for _, n := range r.Faults {
		faults += n
	}
	return fmt.Sprintf("soak seed %d: %s; %v, %d rounds, %d requests, %d commands (%d upgraded, %d rolled back), %d faults, %d MiB, orphans %v, exit %v",
		r.Seed, verdict, r.Took.Round(time.Second), r.Rounds, r.Requests, commands, r.Commands["upgraded"], r.Commands["rolled-back"], faults,
		r.Worst.HostMiB, r.Worst.Orphans.Round(time.Millisecond), r.Worst.Exit.Round(time.Millisecond))
}

// write writes the report as JSON.
func (r *report) write(path string) error {
	var out io.Writer = os.Stdout
	if path != "-" {
		f, err := os.Create(path)
		if err != nil {
			return err
		}
		defer f.Close()
		out = f
	}
	enc := json.NewEncoder(out)
	enc.SetIndent("", " ")
	return enc.Encode(r)
}
