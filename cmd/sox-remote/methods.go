package main

// The methods that the relay has to know.
const (
	methodInitialize   = "initialize"
	methodDiscover     = "server/discover"
	methodInitialized  = "notifications/initialized"
	methodCancelled    = "notifications/cancelled"
	methodListen       = "subscriptions/listen"
	methodAcknowledged = "notifications/subscriptions/acknowledged"
	methodUpdated      = "notifications/resources/updated"
	methodListTools    = "tools/list"
	methodCallTool     = "tools/call"
	methodSetLevel     = "logging/setLevel"
	methodSubscribe    = "resources/subscribe"
	methodUnsubscribe  = "resources/unsubscribe"
)

// harmless are the requests that may be sent twice, for they only read, or set what they set.
var harmless = map[string]bool{
	methodInitialize: true, methodDiscover: true, "ping": true, methodListen: true,
	methodListTools: true, "prompts/list": true, "resources/list": true, "resources/templates/list": true,
	"prompts/get": true, "resources/read": true, "completion/complete": true,
	methodSetLevel: true, methodSubscribe: true, methodUnsubscribe: true,
}
