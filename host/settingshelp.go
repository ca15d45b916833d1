package host

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
		{"idle_retire", "duration", "never", "stop the process after this long without work; the next call starts it again"},
		{"start_timeout", "duration", "10s", "limit from start to ready"},
		{"call_timeout", "duration", "1h", "limit of a call whose client names none"},
		{"drain_timeout", "duration", "30s", "how long an old version may finish its calls"},
		{"stop_timeout", "duration", "3s", "limit for the process to end; not in effect yet"},
		{"serial", "true/false", "false", "at most one request at a time; not in effect yet"},
		{"required", "true/false", "false", "the host does not serve without it; not in effect yet"},
		{"keep_warm", "true/false", "false", "keep the old process through probation; not in effect yet"},
		{"lifetime", "text", "private", "private: a process for each host; shared: one for all hosts, not in effect yet"},
	}
}
