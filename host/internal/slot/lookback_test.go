package slot

import (
	"strings"
	"testing"
)

// An upgrade with nothing running compares with what the build before lists, also where that is not in the cache, as after
// a change of the environment: it is started for it, and ends again. One that does not come up is in nobody's way.
func TestColdUpgradeIsComparedWithTheBuildBefore(t *testing.T) {
	for name, c := range map[string]struct {
		settings Settings
		broken   bool
		request  UpgradeRequest
		result   Result
		exit     Exit
		schema   string
		starts   int
	}{
		"as it was":         {exit: ExitRefused, result: ResultRefused, schema: "+0 ~0 -1", starts: 2},
		"dry run":           {request: UpgradeRequest{DryRun: true}, exit: ExitRefused, result: ResultRefused, schema: "+0 ~0 -1", starts: 2},
		"exclusive":         {settings: Settings{Exclusive: true}, exit: ExitRefused, result: ResultRefused, schema: "+0 ~0 -1", starts: 2},
		"that is accepted":  {request: UpgradeRequest{AllowBreaking: true}, result: ResultUpgraded, schema: "+0 ~0 -1", starts: 2},
		"it is broken":      {broken: true, result: ResultUpgraded, schema: "+1 ~0 -0 (what 1.0.0 listed is not known)", starts: 2},
		"back to the older": {request: UpgradeRequest{Rollback: true}, exit: ExitNotFound, result: ResultFailed, starts: 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, []string{"1.0.0"}, func(e *env) {
				e.open(Settings{})
				e.up(e.session())
				e.close()
				began := len(e.all())
				e.config.EnvHash = "of another terminal"
				if c.broken {
					e.set("1.0.0", func(p *script) { p.exitAtStart = true })
				}
				e.drop("1.1.0", "")
				e.set("1.1.0", func(p *script) { p.tools = defaultTools[:1] })
				e.open(c.settings)
				c.request.SettleMS = quick
				report := e.upgrade(c.request)
				want(t, "exit of "+report.Error, report.Exit, c.exit)
				want(t, "result", report.Result, c.result)
				want(t, "schema", report.Schema, c.schema)
				want(t, "starts", len(e.all())-began, c.starts)
				for _, p := range e.all() {
					if strings.HasPrefix(p.version, "1.0") && p.running() {
						t.Error("the build before still runs")
					}
				}
			})
		})
	}
}
