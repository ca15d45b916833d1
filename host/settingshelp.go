package host

// settingsTopic is what sox-host help takes for them.
const settingsTopic = "settings"

// SettingHelp describes one member of NAME.json, a plugin's settings.
type SettingHelp struct {
	Member  string `json:"member"`
	Type    string `json:"type"`
	Default string `json:"default"`
	Text    string `json:"text"`
}

// SettingsHelp lists every member of NAME.json, in the order in which people need them.
func SettingsHelp() []SettingHelp {
	return []SettingHelp{
		{"env", "object", "{}", "variables for the plugin; they win over every other source, and \"\" stays \"\""},
		{"env_allow", "list", "[]", "names of variables that are passed on from the client; AWS_* is a prefix"},
		{"args", "list", "[]", "arguments, passed unchanged, behind those of a manifest"},
		{"constraint", "text", "any release", "versions that an upgrade may choose, such as \">= 1.2, < 2\""},
		{"tools", "object", "all", "{\"allow\": [...], \"deny\": [...], \"rename\": {\"old\": \"new\"}}, by the plugin's own names; deny wins"},
		{"read_only", "true/false", "false", "refuse every call that is not known to be a read"},
		{"order", "number", "0", "place of its entries in lists: lower numbers first, then by name"},
		{"exclusive", "true/false", "false", "at most one process at a time: an upgrade stops the old one first, while calls wait"},
		{"idle_retire", "duration", "never", "stop the process after this long without work; the next call starts it again; 10m by default if it is shared"},
		{"start_timeout", "duration", "10s", "limit from start to ready"},
		{"call_timeout", "duration", "1h", "limit of a call whose client names none"},
		{"health_timeout", "duration or \"off\"", "5s", "silence, with calls open, after which it is asked for a sign of life, and again after which it is killed; a wrapped server only where this is set; \"off\" for a debugger"},
		{"drain_timeout", "duration", "30s", "how long an old version may finish its calls"},
		{"stop_timeout", "duration", "2.5s", "limit for the process to end by itself; then it is killed"},
		{"serial", "true/false", "false", "at most one call at a time in a process; others wait in order"},
		{"required", "true/false", "false", "no lists without it: it starts with the client, and while it cannot be used, an error says why"},
		{"keep_warm", "true/false", "false", "keep the old process of an upgrade for the 30 s in which a crash goes back to it"},
		{"lifetime", "text", "private", "private: a process for each host; shared: one for all hosts, which outlives them and ends when it has been idle; not with exclusive, serial or a manifest"},
	}
}
