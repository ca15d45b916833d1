package main

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/sox-host/sox-host/host"
)

func rendered(t *testing.T, report host.RollReport, req host.UpgradeRequest) string {
	t.Helper()
	var out strings.Builder
	printRoll(&call{stdout: &out, flags: pflag.NewFlagSet("upgrade", pflag.ContinueOnError)}, report, req)
	for line := range strings.Lines(out.String()) {
		if strings.TrimRight(line, " \n") != strings.TrimSuffix(line, "\n") {
			t.Errorf("trailing blanks in %q", line)
		}
	}
	return out.String()
}

func TestRollTextReadsAsDocumented(t *testing.T) {
	upgraded := host.Report{
		Plugin: "notes", Result: host.ResultUpgraded, From: "1.2.0", To: "1.3.0", Generation: 8,
		StagedMS: 41, StartedMS: 63.2, Schema: "+1 ~1 -0", CutoverMS: 0.4, Drained: 3, DrainMS: 1234,
	}
	one := func(r host.Report, hosts ...host.HostReport) host.PluginRoll {
		return host.PluginRoll{Plugin: r.Plugin, Exit: r.Exit, Error: r.Error, Report: r, Hosts: hosts}
	}
	done := host.HostReport{PID: 11, Canary: true, Outcome: host.OutcomeDone}
	cases := []struct {
		name string
		of   []host.PluginRoll
		exit host.Exit
		req  host.UpgradeRequest
		want string
	}{
		{
			name: "an upgrade",
			of:   []host.PluginRoll{one(upgraded, done)},
			want: `notes  1.2.0 -> 1.3.0
  staged 41ms   started 63ms   schema +1 ~1 -0   cut over (generation 8) in 0.4ms
  drained 3 calls in 1.2s   stopped 1.2.0
notes  upgraded to 1.3.0   0 calls failed   undo: sox-host rollback notes
`,
		},
		{
			name: "to a version that it is pinned to",
			of: []host.PluginRoll{one(host.Report{
				Plugin: "notes", Result: host.ResultUpgraded, From: "1.3.0", To: "1.2.0", Pinned: "1.2.0", Generation: 8, StagedMS: 41, CutoverMS: 0.4,
			}, done)},
			want: `notes  1.3.0 -> 1.2.0
  staged 41ms   cut over (generation 8) in 0.4ms
  no calls to drain   stopped 1.3.0
notes  downgraded to 1.2.0   0 calls failed   undo: sox-host unpin notes && sox-host rollback notes
`,
		},
		{
			name: "with the old version kept warm",
			of:   []host.PluginRoll{one(host.Report{Plugin: "notes", Result: host.ResultUpgraded, From: "1.2.0", To: "1.3.0", Generation: 8, StagedMS: 41, CutoverMS: 0.4, Warm: true}, done)},
			want: `notes  1.2.0 -> 1.3.0
  staged 41ms   cut over (generation 8) in 0.4ms
  no calls to drain   1.2.0 stays warm through the probation
notes  upgraded to 1.3.0   0 calls failed   undo: sox-host rollback notes
`,
		},
		{
			name: "on several hosts",
			of:   []host.PluginRoll{one(upgraded, done, host.HostReport{PID: 12, Outcome: host.OutcomeDone})},
			want: `notes  1.2.0 -> 1.3.0
  staged 41ms   started 63ms   schema +1 ~1 -0   cut over (generation 8) in 0.4ms
  drained 3 calls in 1.2s   stopped 1.2.0
notes  upgraded to 1.3.0   0 calls failed   on 2 hosts   undo: sox-host rollback notes
`,
		},
		{
			name: "nothing to do",
			of:   []host.PluginRoll{one(host.Report{Plugin: "notes", Result: host.ResultUnchanged, From: "1.3.0", To: "1.3.0", StagedMS: 12}, done)},
			want: "notes  nothing to do at 1.3.0\n",
		},
		{
			name: "refused",
			of: []host.PluginRoll{one(host.Report{
				Plugin: "notes", Result: host.ResultRefused, Exit: host.ExitRefused, From: "1.2.0", To: "2.0.0", FailedStep: "gate",
				StagedMS: 5, StartedMS: 50, Schema: "+0 ~0 -1", Breaking: []string{"tool find: removed"}, Error: "breaking change: --allow-breaking accepts it",
			}, host.HostReport{PID: 11, Canary: true, Outcome: host.OutcomeFailed, Error: "breaking change"}, host.HostReport{PID: 12, Outcome: host.OutcomeUntouched})},
			exit: host.ExitRefused,
			want: `notes  1.2.0 -> 2.0.0
  staged 5.0ms   started 50ms   schema +0 ~0 -1
  breaking: tool find: removed
notes  refused at gate: breaking change: --allow-breaking accepts it   1.2.0 still serves
`,
		},
		{
			name: "refused where it had stopped as idle",
			of: []host.PluginRoll{one(host.Report{
				Plugin: "notes", Result: host.ResultRefused, Exit: host.ExitRefused, From: "1.2.0", To: "2.0.0", FailedStep: "gate", Error: "breaking change",
			}, host.HostReport{PID: 11, Canary: true, Outcome: host.OutcomeFailed, Before: "cold"})},
			exit: host.ExitRefused,
			want: "notes  1.2.0 -> 2.0.0\nnotes  refused at gate: breaking change   1.2.0 stays active\n",
		},
		{
			name: "a restart that fails where nothing ran",
			of: []host.PluginRoll{one(host.Report{
				Plugin: "notes", Result: host.ResultFailed, Exit: host.ExitFailed, From: "1.2.0", To: "1.2.0", FailedStep: "ready", Error: "it is exclusive",
			}, host.HostReport{PID: 11, Canary: true, Outcome: host.OutcomeFailed, Before: "cold"})},
			exit: host.ExitFailed,
			req:  host.UpgradeRequest{Restart: true},
			want: "notes  1.2.0 -> 1.2.0\nnotes  failed at ready: it is exclusive   nothing serves\n",
		},
		{
			name: "an upgrade that fails where the version before could not start",
			of: []host.PluginRoll{one(host.Report{
				Plugin: "notes", Result: host.ResultFailed, Exit: host.ExitFailed, From: "1.2.0", To: "1.3.0", FailedStep: "ready", Error: "it is exclusive",
			}, host.HostReport{PID: 11, Canary: true, Outcome: host.OutcomeFailed, Before: "broken"})},
			exit: host.ExitFailed,
			want: "notes  1.2.0 -> 1.3.0\nnotes  failed at ready: it is exclusive   nothing serves\n",
		},
		{
			name: "an upgrade where nothing ran",
			of: []host.PluginRoll{one(host.Report{
				Plugin: "notes", Result: host.ResultUpgraded, From: "1.2.0", To: "1.3.0", Generation: 8, StartedMS: 63.2, CutoverMS: 0.4,
			}, host.HostReport{PID: 11, Canary: true, Outcome: host.OutcomeDone, Before: "cold"})},
			want: `notes  1.2.0 -> 1.3.0
  started 63ms   cut over (generation 8) in 0.4ms
notes  upgraded to 1.3.0   0 calls failed   undo: sox-host rollback notes
`,
		},
		{
			name: "text of a plugin cannot forge lines",
			of: []host.PluginRoll{one(host.Report{
				Plugin: "notes", Result: host.ResultFailed, Exit: host.ExitFailed, FailedStep: "start", Error: "exit 1: boom\nnotes  upgraded to 9.9.9\x1b[2J",
			})},
			exit: host.ExitFailed,
			want: "notes  failed at start: exit 1: boom notes  upgraded to 9.9.9?[2J\n",
		},
		{
			name: "a dry run",
			of:   []host.PluginRoll{one(host.Report{Plugin: "notes", Result: host.ResultPlanned, From: "1.2.0", To: "1.3.0", Schema: "+1 ~0 -0"}, done)},
			req:  host.UpgradeRequest{DryRun: true},
			want: `notes  1.2.0 -> 1.3.0
  schema +1 ~0 -0
notes  would go to 1.3.0   nothing was changed
`,
		},
		{
			name: "one of two failed, another host was silent",
			of: []host.PluginRoll{
				{
					Plugin: "notes", Exit: host.ExitPartial, Error: "not every host answered", Report: upgraded,
					Hosts: []host.HostReport{done, {PID: 12, Outcome: host.OutcomeUnresponsive, Error: "the host does not answer"}},
				},
				one(host.Report{Plugin: "echo", Result: host.ResultFailed, Exit: host.ExitFailed, FailedStep: "preflight", Error: "it is not executable"}),
			},
			exit: host.ExitPartial,
			want: `notes  1.2.0 -> 1.3.0
  staged 41ms   started 63ms   schema +1 ~1 -0   cut over (generation 8) in 0.4ms
  drained 3 calls in 1.2s   stopped 1.2.0
  host 11 (first) done
  host 12 unresponsive: the host does not answer
notes  upgraded to 1.3.0   0 calls failed   not every host answered   undo: sox-host rollback notes
echo  failed at preflight: it is not executable
2 of 2 plugins not done: notes, echo
`,
		},
		{
			name: "calls that the drain limit ended",
			of: []host.PluginRoll{one(host.Report{
				Plugin: "notes", Result: host.ResultUpgraded, From: "1.2.0", To: "1.3.0", Generation: 2, CutoverMS: 0.01, Drained: 1, Unknown: 2, DrainMS: 1000,
			}, done)},
			want: `notes  1.2.0 -> 1.3.0
  cut over (generation 2) in <0.1ms
  drained 1 call in 1.0s   stopped 1.2.0
notes  upgraded to 1.3.0   2 calls failed at the drain limit   undo: sox-host rollback notes
`,
		},
	}
	for _, test := range cases {
		t.Run(test.name, func(t *testing.T) {
			if got := rendered(t, host.RollReport{Exit: test.exit, Plugins: test.of}, test.req); got != test.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, test.want)
			}
		})
	}
}

func TestUndoLeadsToTheSameFolders(t *testing.T) {
	fs := pflag.NewFlagSet("upgrade", pflag.ContinueOnError)
	fs.String("home", "", "")
	fs.String("plugins-dir", "", "")
	if err := fs.Parse([]string{"--home", "/a b"}); err != nil {
		t.Fatal(err)
	}
	if got, want := (&call{flags: fs}).sameFolders(), " --home '/a b'"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
