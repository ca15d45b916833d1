// Web is the daemon that the first seed of sox-host compares with: JSON-RPC over localhost HTTP. It says back the
// params, as the other programs of the benchmark do, prints its address, and ends with its stdin.
package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
)

func main() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, "web:", err)
		os.Exit(1)
	}
	fmt.Println(l.Addr())
	go func() { // ends with the process
		fmt.Fprintln(os.Stderr, "web:", http.Serve(l, http.HandlerFunc(answer)))
		os.Exit(1)
	}()
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func answer(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	i := bytes.Index(body, []byte(`"params":`))
	if err != nil || i < 0 {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(`{"jsonrpc":"2.0","id":1,"result":`)) // a client that went away has no use for an error
	_, _ = w.Write(body[i+len(`"params":`):])
}
