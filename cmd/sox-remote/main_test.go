package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func lookupIn(env map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := env[name]
		return value, ok
	}
}

func TestConfig(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := file("good", `{"X-Key":"${KEY}","Authorization":"file"}`, 0o600)
	for name, c := range map[string]struct {
		env  map[string]string
		want string // of the error; "" = none
	}{
		"no_url":              {map[string]string{}, "SOX_REMOTE_URL is not set"},
		"no_scheme":           {map[string]string{"SOX_REMOTE_URL": "a/b"}, "begin with https://HOST"},
		"no_host":             {map[string]string{"SOX_REMOTE_URL": "https:///b"}, "begin with https://HOST"},
		"no_url_at_all":       {map[string]string{"SOX_REMOTE_URL": "https://u:s3cret %@h/"}, "cannot be read"},
		"missing_variable":    {map[string]string{"SOX_REMOTE_URL": "https://h/?k=${TOKEN}"}, `needs the variable TOKEN, which is not set: put it into "env" of NAME.json`},
		"missing_in_a_plugin": {map[string]string{"SOX_REMOTE_URL": "https://h/?k=${TOKEN}", "SOX_PLUGIN_NAME": "tok"}, `put it into "env" of tok.json, or let the client set it and name it in "env_allow" there`},
		"transport":           {map[string]string{"SOX_REMOTE_URL": "https://h", "SOX_REMOTE_TRANSPORT": "ws"}, `write "http" or "sse"`},
		"headers_no_object":   {map[string]string{"SOX_REMOTE_URL": "https://h", "SOX_REMOTE_HEADERS": "s3cret"}, "not a JSON object"},
		"header_variable":     {map[string]string{"SOX_REMOTE_URL": "https://h", "SOX_REMOTE_HEADERS": `{"A":"${NO}"}`}, `the header A in "headers" needs the variable NO`},
		"header_value":        {map[string]string{"SOX_REMOTE_URL": "https://h", "SOX_REMOTE_HEADERS": `{"A":"${V}"}`, "V": "s3cret\n"}, "control character"},
		"header_reserved":     {map[string]string{"SOX_REMOTE_URL": "https://h", "SOX_REMOTE_HEADERS": `{"Mcp-Session-Id":"x"}`}, "belongs to the transport"},
		"file":                {map[string]string{"SOX_REMOTE_URL": "https://h", "SOX_REMOTE_HEADERS_FILE": good, "KEY": "k"}, ""},
		"file_variable":       {map[string]string{"SOX_REMOTE_URL": "https://h", "SOX_REMOTE_HEADERS_FILE": good}, "needs the variable KEY"},
		"file_missing":        {map[string]string{"SOX_REMOTE_URL": "https://h", "SOX_REMOTE_HEADERS_FILE": filepath.Join(dir, "no")}, "does not exist"},
		"file_is_a_folder":    {map[string]string{"SOX_REMOTE_URL": "https://h", "SOX_REMOTE_HEADERS_FILE": dir}, "is not a file"},
		"file_of_others":      {map[string]string{"SOX_REMOTE_URL": "https://h", "SOX_REMOTE_HEADERS_FILE": file("open", `{"A":"s3cret"}`, 0o644)}, "others may read or write it (mode 0644): make it yours alone with chmod 600"},
		"file_no_object":      {map[string]string{"SOX_REMOTE_URL": "https://h", "SOX_REMOTE_HEADERS_FILE": file("text", "s3cret", 0o600)}, "not a JSON object"},
		"file_longer":         {map[string]string{"SOX_REMOTE_URL": "https://h", "SOX_REMOTE_HEADERS_FILE": file("long", strings.Repeat(" ", maxHeadersFile+1), 0o600)}, "is not a file of at most"},
		"variable_in_a_value": {map[string]string{"SOX_REMOTE_URL": "https://h", "SOX_REMOTE_HEADERS": `{"A":"${V}"}`, "V": "${W}"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "file_of_others" && runtime.GOOS == "windows" {
				t.Skip("files have no mode bits on Windows")
			}
			config, err := loadConfig(lookupIn(c.env))
			if err == nil {
				_, err = config.headers()
			}
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Errorf("a secret is in %q", err)
			}
		})
	}
	config, err := loadConfig(lookupIn(map[string]string{
		"SOX_REMOTE_URL": "https://user:pa%40ss@h:8/${P}?k=v#f", "P": "a", "SOX_REMOTE_HEADERS": `{"authorization":"here","B":"${K}-${K}"}`,
		"SOX_REMOTE_HEADERS_FILE": good, "K": "${K}", "KEY": "k",
	}))
	if err != nil {
		t.Fatal(err)
	}
	headers, err := config.headers()
	if err != nil || headers.Get("Authorization") != "file" || headers.Get("B") != "${K}-${K}" || headers.Get("X-Key") != "k" {
		t.Errorf("%v, %v", headers, err)
	}
	if got := config.target.String(); got != "https://user:pa%40ss@h:8/a?k=v" || config.shown() != "https://h:8" {
		t.Errorf("%s, shown as %s", got, config.shown())
	}
}

func TestCommandLine(t *testing.T) {
	for args, want := range map[string]struct {
		code           int
		stdout, stderr string
	}{
		"--version":      {0, "sox-remote devel (go", ""},
		"--help":         {0, "SOX_REMOTE_HEADERS_FILE  a file", ""},
		"-h":             {0, "SOX_REMOTE_URL", ""},
		"--url https://": {2, "", "it takes no arguments"},
		"":               {2, "", "sox-remote: SOX_REMOTE_URL is not set"},
	} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), strings.Fields(args), lookupIn(nil), strings.NewReader(""), &stdout, &stderr)
		if code != want.code || !strings.Contains(stdout.String(), want.stdout) || !strings.Contains(stderr.String(), want.stderr) || stderr.Len() > 0 != (want.stderr != "") {
			t.Errorf("%q: %d\n%s\n%s", args, code, stdout.String(), stderr.String())
		}
	}
}

// slow answers a call after five seconds, and every other request at once.
func slow(d time.Duration) http.Handler {
	return plain(func(w http.ResponseWriter, r *http.Request, id json.RawMessage, method string) {
		if method == "tools/call" {
			select {
			case <-time.After(d): // virtual
			case <-r.Context().Done():
			}
		}
		result(w, id, `{"fine":true}`)
	})
}

// What is open when the client closes stdin is answered if that takes no longer than a second; everything written to
// stdin before its end is served.
func TestStdinEnds(t *testing.T) {
	for name, c := range map[string]struct {
		takes time.Duration
		want  bool
	}{"soon": {500 * time.Millisecond, true}, "later": {5 * time.Second, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &network{}
				n.set(slow(c.takes))
				client := connect(t, n, nil)
				client.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":` + initializeParams + `}`)
				client.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
				client.send(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
				client.send(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"t"}}`)
				begun := time.Now()
				client.close()
				if took := time.Since(begun); took > lastAnswers+farewell {
					t.Errorf("took %v", took)
				}
				lines := strings.Join(client.rest(), "\n")
				if strings.Contains(lines, `"id":3,"result"`) != c.want || !strings.Contains(lines, `"id":2,"result"`) || strings.Contains(lines, `"error"`) {
					t.Errorf("%s", lines)
				}
				if n.count("DELETE") != 1 {
					t.Errorf("the server got %q", n.seen())
				}
			})
		})
	}
}

// A signal ends it at once, and a server that does not answer the DELETE holds it for half a second.
func TestSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{}
		inner := slow(time.Hour)
		n.set(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodDelete {
				<-r.Context().Done()
				return
			}
			inner.ServeHTTP(w, r)
		}))
		c := connect(t, n, nil)
		c.greet()
		c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t"}}`)
		settle()
		begun := time.Now()
		c.stop()
		if err := <-c.ended; err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took > farewell {
			t.Errorf("took %v", took)
		}
		if rest := c.rest(); len(rest) > 0 {
			t.Errorf("left over: %q", rest)
		}
	})
}

// A client that reads nothing keeps nobody from ending.
func TestClientThatNeverReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{}
		n.set(plain(func(w http.ResponseWriter, _ *http.Request, id json.RawMessage, _ string) {
			result(w, id, `{"text":"`+strings.Repeat("x", 512<<10)+`"}`)
		}))
		config, err := loadConfig(lookupIn(map[string]string{"SOX_REMOTE_URL": "http://127.0.0.1/mcp"}))
		if err != nil {
			t.Fatal(err)
		}
		in, stdin := io.Pipe()
		out, stdout := io.Pipe()
		r := newRelay(config, http.Header{}, n, stdout, log.New(io.Discard, "", 0))
		ended := make(chan error, 1)
		go func() { ended <- r.run(context.Background(), in) }()
		for i := range 20 {
			fmt.Fprintf(stdin, `{"jsonrpc":"2.0","id":%d,"method":"tools/list"}`+"\n", i)
		}
		settle()
		if backlog := r.out.Backlog(); backlog > 6<<20 {
			t.Errorf("%d bytes are kept for a client that does not read", backlog)
		}
		begun := time.Now()
		stdin.Close()
		if err := <-ended; err == nil {
			t.Error("what was not read is no error")
		}
		if took := time.Since(begun); took > lastAnswers+3*farewell {
			t.Errorf("took %v", took)
		}
		out.Close()
	})
}

func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{}
		n.set(slow(time.Hour))
		c := connect(t, n, nil)
		c.greet()
		settle()
		for i := range maxOpen {
			c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"t"}}`, 100+i))
		}
		expect(t, "one more", c.call("2", "tools/call", `{"name":"t"}`), "-32004", `"executed":"no"`)
		c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":100}}`)
		settle()
		expect(t, "after one ended", c.call("3", "ping", ""), `"result"`)
		if rest := c.rest(); len(rest) > 0 {
			t.Errorf("left over: %q", rest)
		}
		c.close()
	})
}

// Lines that are no requests are answered if anybody waits for that, and end nothing.
func TestBadLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{}
		n.set(slow(0))
		c := connect(t, n, nil)
		c.greet()
		expect(t, "fraction", c.call("1.5", "ping", ""), "-32600", "2^53")
		expect(t, "large number", c.call("9007199254740993", "ping", ""), "-32600")
		expect(t, "text", c.call(`"é\u0041"`, "ping", ""), `"result"`)
		expect(t, "zero", c.call("0", "ping", ""), `"result"`)
		expect(t, "negative", c.call("-7", "ping", ""), `"result"`)
		c.send(`hello`)
		c.send(`[{"jsonrpc":"2.0","id":8,"method":"ping"}]`)
		c.send(`{"jsonrpc":"1.0","id":9,"method":"ping"}`)
		expect(t, "version", c.await(`"id":9`), "-32600")
		c.send(`{"jsonrpc":"2.0","id":77,"result":{}}`)
		c.send(`{"jsonrpc":"2.0","id":10,"method":"ping","params":{"x":"` + strings.Repeat("x", testLimit) + `"}}`)
		expect(t, "too long", c.await(`"id":10`), "-32600", "exceeds the limit")
		expect(t, "and then", c.call("11", "ping", ""), `"result"`)
		if rest := c.rest(); len(rest) > 0 {
			t.Errorf("left over: %q", rest)
		}
		c.close()
	})
}

// Over real sockets: a certificate that nobody vouches for is told, and no request is sent.
func TestCertificateThatIsNotTrusted(t *testing.T) {
	requests := make(chan *http.Request, 10)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { requests <- r }))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of the handshake that the client breaks off
	server.StartTLS()
	defer server.Close()
	in, stdin := io.Pipe()
	out, stdout := io.Pipe()
	var stderr bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		ended <- run(context.Background(), nil, lookupIn(map[string]string{"SOX_REMOTE_URL": server.URL}), in, stdout, &stderr)
	}()
	fmt.Fprintf(stdin, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":%s}`+"\n", initializeParams)
	answer, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "answer", answer, "-32001", "has a certificate that is not trusted", "SSL_CERT_FILE")
	stdin.Close()
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d: %s", code, stderr.String())
	}
	if len(requests) > 0 {
		t.Error("a request was sent")
	}
}
