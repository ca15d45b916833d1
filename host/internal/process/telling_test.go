package process

import (
	"strings"
	"testing"
)

func TestTelling(t *testing.T) {
	frames := strings.Repeat("    at Module._load (node:internal/modules/cjs/loader:1104:12)\n", 10)
	for name, c := range map[string]struct{ said, want string }{
		"nothing_is_nothing":   {"", ""},
		"plain_last_line":      {"starting\nlast words", "last words"},
		"blank_lines_are_none": {"last words\n\n  \n", "last words"},
		"npm": {`npm error code E404
npm error 404 Not Found - GET https://registry.example/nope - Not found
npm error 404
npm error 404  'nope@*' is not in this registry.
npm error 404 Note that you can also install from a
npm error 404 tarball, folder, http url, or git folder.
npm error A complete log of this run can be found in: /home/me/.npm/_logs/2026-01-01T00_00_00_000Z-debug-0.log`, "npm error code E404"},
		"npm_with_news": {`npm error code ENOTFOUND
npm error network request to https://registry.example/nope failed
npm notice
npm notice New major version of npm available! 10.0.0 -> 11.0.0
npm notice`, "npm error code ENOTFOUND"},
		"npm_without_a_log": {"npm error code EACCES\nnpm error syscall mkdir", "npm error code EACCES"},
		"npm_of_old": {`npm ERR! code E404
npm ERR! 404 Not Found
npm ERR! A complete log of this run can be found in:
npm ERR!     /home/me/.npm/_logs/debug-0.log`, "npm ERR! code E404"},
		"node": {`node:internal/modules/cjs/loader:1228
  throw err;
  ^

Error: Cannot find module '/srv/server.js'
` + frames + `  code: 'MODULE_NOT_FOUND',
  requireStack: []
}

Node.js v22.0.0`, "Error: Cannot find module '/srv/server.js'"},
		"python": {`Traceback (most recent call last):
  File "server.py", line 3, in <module>
    raise ValueError("no port")
ValueError: no port`, "ValueError: no port"},
		"go_panic":               {"panic: no config\n\ngoroutine 1 [running]:\nmain.main()\n\t/src/main.go:5 +0x1d", "panic: no config"},
		"usage_behind_the_fault": {"unknown flag: --prot\nUsage: server [flags]\n  --port int", "unknown flag: --prot"},
		"usage_that_ends_in_prose": {`notes: unexpected argument "--x"

usage: notes [--read-only] [--version] [--help]

Without flags it serves, or says why it cannot.

  --read-only   refuse everything that is not declared read-only

notes 1.0.0, a sox-host plugin (go1.26.0)

Any MCP client can also start it directly and talk to it.`, `notes: unexpected argument "--x"`},
		"flags_of_go": {"flag provided but not defined: -x\nUsage of /srv/notes:\n  -port int\n    \tthe port, invalid if 0\n\nSee the manual.", "flag provided but not defined: -x"},
		"cobra":       {"Error: unknown flag: --x\nUsage:\n  notes [flags]\n\nFlags:\n      --port int   the port\n\nunknown flag: --x", "Error: unknown flag: --x"},
		"usage_longer_than_the_look": {"notes: unexpected argument \"--x\"\n\nusage: notes\n" + strings.Repeat("  --flag   a flag\n", 2*tellingLines) + "Read the manual.",
			"notes: unexpected argument \"--x\""},
		"argparse_says_it_last": {"usage: server.py [-h] [--port PORT]\n                 [--unknown]\nserver.py: error: unrecognized arguments: --x",
			"server.py: error: unrecognized arguments: --x"},
		"own_name_without_an_error_word": {"/opt/notes: port 70000 is too high\nUsage: notes --port N\nA port.", "/opt/notes: port 70000 is too high"},
		"name_before_noise":              {"notes: bad port\nerror codes are in the manual\nusage: notes --port N", "notes: bad port"},
		"a_log_before_the_fault":         {"error: no cache, going on\n\nunknown flag: --x\nUsage: server [flags]", "unknown flag: --x"},
		"a_usage_banner_of_a_crash":      {"server 1.0\nUsage: open http://localhost\n\nTypeError: x is not a function\n    at a.js:1", "TypeError: x is not a function"},
		"a_usage_long_past":              {"error: no port, taking 80\nusage: server --port N\n" + strings.Repeat("at work\n", usageLines) + "disk failure", "disk failure"},
		"only_a_usage":                   {"usage: server COMMAND\n\ncommands:\n  serve   serve\n\nSee the manual.", "usage: server COMMAND"},
		"a_line_before_a_usage":          {"give me a command\nusage: server COMMAND\n\nSee the manual.", "give me a command"},
		"last_error_of_several":          {"ERROR try 1 failed\nERROR try 2 failed\nFATAL giving up", "FATAL giving up"},
		"java_names_its_cause":           {"Exception in thread \"main\" X\n\tat A.b(A.java:1)\nCaused by: java.io.IOException: disk\n\tat C.d(C.java:2)", "Caused by: java.io.IOException: disk"},
		"errors_counted_are_none":        {"0 errors\nstopped", "stopped"},
		"what_is_long_past":              {"error: early\n" + strings.Repeat("at work\n", tellingLines) + "killed", "killed"},
		"only_a_pointer_to_a_log":        {"error log written to /tmp/x.log", "error log written to /tmp/x.log"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Telling(strings.Split(c.said, "\n")); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestSaysWhy(t *testing.T) {
	for said, want := range map[string]bool{
		"":                               false,
		"starting\nready soon":           false,
		"notes: this store has format 3": true,
		"other: this store has format 3": false,
		"panic: no config":               true,
		"give me a command\nusage: notes COMMAND": false,
	} {
		if got := SaysWhy(strings.Split(said, "\n"), "notes"); got != want {
			t.Errorf("%q: %v", said, got)
		}
	}
}

func TestSaysInUse(t *testing.T) {
	for said, want := range map[string]bool{
		"": false,
		"sqlite3.OperationalError: database is locked":                       true,
		"listen tcp 127.0.0.1:80: bind: address already in use":              true,
		"Error: listen EADDRINUSE: address already in use :::80":             true,
		"could not acquire the lock of /srv/db\nbye":                         true,
		"Another instance is running":                                        true,
		"flock: resource temporarily unavailable":                            true,
		"open /srv/db.lock: file exists":                                     true,
		"The process cannot access the file because it is used by another":   true,
		"Cannot find module '/srv/package-lock.json'":                        false,
		"the index has format 3, and this build reads up to 2":               false,
		"plugin is read-only; clock of the host is wrong; deadlock detected": false,
	} {
		if got := SaysInUse(strings.Split(said, "\n")); got != want {
			t.Errorf("%q: %v", said, got)
		}
	}
}

func TestSaid(t *testing.T) {
	for name, c := range map[string]struct{ said, plugin, want string }{
		"nothing":     {"\n", "notes", ""},
		"a_line":      {"error: no port.\nbye", "notes", "; last output: error: no port; all of it: sox-host logs notes"},
		"no_log":      {"error: no port", "", "; last output: error: no port"},
		"a_long_line": {"x" + strings.Repeat("é", MaxSaid), "", "; last output: x" + strings.Repeat("é", MaxSaid/2-1) + "…"},
	} {
		if got := Said(strings.Split(c.said, "\n"), c.plugin); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
