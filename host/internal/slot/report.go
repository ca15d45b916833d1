package slot

import "time"

// Step names one step of an upgrade, in the order they run.
type Step string

const (
	StepLock      Step = "lock"
	StepResolve   Step = "resolve"
	StepPreflight Step = "preflight"
	StepStage     Step = "stage"
	StepStart     Step = "start"
	StepReady     Step = "ready"
	StepOpen      Step = "open"
	StepList      Step = "list"
	StepDiff      Step = "diff"
	StepGate      Step = "gate"
	StepCommit    Step = "commit"
	StepCutover   Step = "cutover"
	StepNotify    Step = "notify"
	StepDrain     Step = "drain"
	StepStop      Step = "stop"
	StepProbation Step = "probation"
)

// Result says how an operation on a plugin ended.
type Result string

const (
	ResultUpgraded   Result = "upgraded"
	ResultRolledBack Result = "rolled-back"
	ResultRestarted  Result = "restarted"
	ResultUnchanged  Result = "unchanged" // nothing to do
	ResultPlanned    Result = "planned"   // a dry run found work to do and no reason against it
	ResultRefused    Result = "refused"   // a gate said no; nothing changed
	ResultFailed     Result = "failed"    // a step failed; nothing changed, the old generation serves
)

// Exit is an exit code of the command line, as reports carry it.
type Exit int

const (
	ExitDone     Exit = 0  // done, or nothing to do
	ExitFailed   Exit = 1  // the operation failed
	ExitUsage    Exit = 2  // wrong arguments
	ExitNotFound Exit = 3  // no such plugin or version
	ExitVerify   Exit = 4  // verification failed
	ExitRefused  Exit = 5  // refused by policy
	ExitNoHost   Exit = 6  // no running host
	ExitDeadline Exit = 7  // a time limit passed
	ExitPartial  Exit = 8  // some of several plugins or hosts failed
	ExitBusy     Exit = 9  // another operation holds the lock
	ExitPending  Exit = 10 // changes pending (--exit-code)
)

// UpgradeRequest asks for another build of one plugin. The zero value of every member is the default.
type UpgradeRequest struct {
	Plugin     string `json:"plugin"`
	To         string `json:"to,omitempty"`         // exact version
	Constraint string `json:"constraint,omitempty"` // "~> 1.2"
	Prerelease bool   `json:"pre,omitempty"`        // consider prereleases
	Rollback   bool   `json:"rollback,omitempty"`   // to the previous build
	// Leave is the sha256 of the build that a rollback leaves, "" for whichever is committed. Where another one is
	// committed by now, somebody has gone back already, and that one is adopted.
	Leave          string `json:"leave,omitempty"`
	Restart        bool   `json:"restart,omitempty"` // the same build again
	Adopt          bool   `json:"adopt,omitempty"`   // to the committed build, without committing
	AllowDowngrade bool   `json:"allow_downgrade,omitempty"`
	AllowBreaking  bool   `json:"allow_breaking,omitempty"`
	DryRun         bool   `json:"dry_run,omitempty"`
	DrainTimeoutMS int64  `json:"drain_timeout_ms,omitempty"` // 0 = the plugin's setting
	TimeoutMS      int64  `json:"timeout_ms,omitempty"`       // up to the commit; 0 = the plugin's start timeout and 30 s
	// SettleMS is how long the new generation is watched, with the old one kept warm, before success is
	// reported; 0 = DefaultSettle, negative = not at all.
	SettleMS int64 `json:"settle_ms,omitempty"`
}

// StepEvent reports the end of one step while an operation runs.
type StepEvent struct {
	Plugin string  `json:"plugin"`
	Step   Step    `json:"step"`
	MS     float64 `json:"ms"`
	Detail string  `json:"detail,omitempty"`
}

// Report is the result of one operation on one plugin in one host.
type Report struct {
	Plugin     string   `json:"plugin"`
	Result     Result   `json:"result"`
	Exit       Exit     `json:"exit"`
	From       string   `json:"from,omitempty"` // version before; empty = none was active
	To         string   `json:"to,omitempty"`
	FromSHA256 string   `json:"from_sha256,omitempty"`
	ToSHA256   string   `json:"to_sha256,omitempty"`
	Generation uint64   `json:"generation,omitempty"` // that serves now
	Pinned     string   `json:"pinned,omitempty"`     // version that it is pinned to: a rollback needs an unpin first
	FailedStep Step     `json:"failed_step,omitempty"`
	Error      string   `json:"error,omitempty"`  // what, why and what to do
	Schema     string   `json:"schema,omitempty"` // "+1 ~1 -0"
	Breaking   []string `json:"breaking,omitempty"`
	Changes    []string `json:"changes,omitempty"`

	StagedMS  float64 `json:"staged_ms,omitempty"`
	StartedMS float64 `json:"started_ms,omitempty"` // start to listed
	CutoverMS float64 `json:"cutover_ms,omitempty"`
	DrainMS   float64 `json:"drain_ms,omitempty"`
	Drained   int     `json:"drained"` // calls that the old generation finished after the cutover
	Unknown   int     `json:"unknown"` // calls that the drain limit ended with an unknown outcome
	Failed    int     `json:"failed"`  // calls that failed because of this operation

	// Warm says that the old process stays until the new one's probation is over, for a crash to go back to.
	Warm bool `json:"warm,omitempty"`

	// Lifetime is that of the new generation: private or shared. The old process of a shared plugin is left to end by
	// itself, since other hosts may use it.
	Lifetime string `json:"lifetime,omitempty"`

	NoHost bool `json:"no_host,omitempty"` // no host was running: the build was probed and committed
	PID    int  `json:"pid,omitempty"`     // of the host
}

// Status is the state of one slot.
type Status struct {
	Plugin       string             `json:"plugin"`
	State        string             `json:"state"` // cold, starting, active, restarting, broken, stopped
	Version      string             `json:"version,omitempty"`
	SHA256       string             `json:"sha256,omitempty"`
	Generation   uint64             `json:"generation,omitempty"`
	PID          int                `json:"pid,omitempty"`
	Lifetime     string             `json:"lifetime,omitempty"` // private, shared, attached
	Joined       string             `json:"joined,omitempty"`   // how this host came to a shared process: already-live, spawned, adopted-after-wait
	Socket       string             `json:"socket,omitempty"`   // of a shared or attached process
	Since        time.Time          `json:"since,omitzero"`
	Previous     string             `json:"previous,omitempty"`
	Pinned       string             `json:"pinned,omitempty"`
	Available    string             `json:"available,omitempty"` // newest version an upgrade would choose, when it differs
	Probation    bool               `json:"probation,omitempty"`
	Operation    string             `json:"operation,omitempty"` // step of a running upgrade
	Breaker      string             `json:"breaker"`             // closed, open, half-open
	Refused      bool               `json:"refused,omitempty"`   // its process runs and opened no session: a problem says why
	InFlight     int                `json:"in_flight"`
	Queued       int                `json:"queued"`
	Tools        int                `json:"tools"`
	Prompts      int                `json:"prompts"`
	Resources    int                `json:"resources"`
	Methods      []string           `json:"methods,omitempty"`
	Problems     []string           `json:"problems,omitempty"` // dropped tools, refused files, the last failed start
	LastExit     string             `json:"last_exit,omitempty"`
	LastStderr   []string           `json:"last_stderr,omitempty"`
	LastRollback string             `json:"last_rollback,omitempty"`
	Counters     map[string]uint64  `json:"counters"`
	Draining     []GenerationStatus `json:"draining,omitempty"`
}

// GenerationStatus is the state of a generation that drains.
type GenerationStatus struct {
	Generation uint64 `json:"generation"`
	Version    string `json:"version"`
	PID        int    `json:"pid"`
	InFlight   int    `json:"in_flight"`
}
