package bridge

import "testing"

func TestHandshakes(t *testing.T) {
	const initialized = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},"tasks":{}},"serverInfo":{"name":"old","version":"9"},"instructions":"be kind","x":1}`
	want := `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}},"instructions":"be kind","ttlMs":0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"old","version":"9"}}}`
	if got := string(Discovered([]byte(initialized))); got != want {
		t.Errorf("discover:\ngot  %s\nwant %s", got, want)
	}
	const discovered = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"logging":{},"extensions":{"x":{}}},"instructions":"be quick","ttlMs":5,"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"new","version":"8"}}}`
	want = `{"protocolVersion":"2025-03-26","capabilities":{"logging":{}},"serverInfo":{"name":"new","version":"8"},"instructions":"be quick"}`
	if got := string(Initialized([]byte(discovered), []byte(`"2025-03-26"`), []byte(`{"name":"kit"}`))); got != want {
		t.Errorf("initialize:\ngot  %s\nwant %s", got, want)
	}
	want = `{"protocolVersion":"2025-03-26","capabilities":{},"serverInfo":{"name":"kit"}}`
	if got := string(Initialized([]byte(`{"instructions":7}`), []byte(`"2025-03-26"`), []byte(`{"name":"kit"}`))); got != want {
		t.Errorf("initialize of little:\ngot  %s\nwant %s", got, want)
	}
	if Discovered([]byte("[]")) != nil || Initialized([]byte("[]"), nil, nil) != nil {
		t.Error("what is no object was translated")
	}
}
