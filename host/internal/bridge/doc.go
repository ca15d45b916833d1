// Package bridge translates between the two eras of MCP: up to 2025-11-25 ("legacy": a handshake, requests from
// the server to the client) and since 2026-07-28 ("modern": every request carries what is known of the client,
// and a result may ask for input).
//
// The gateway translates for plugins that say that they serve one era only, package wrap for existing servers, of which
// that is not known beforehand. Everything here works on raw JSON: members that a translation does not concern keep
// their bytes. There is no state but the key of a Sealer and what a Listening remembers, no goroutine and no clock; who
// asks whom, and when, is the callers'.
//
//	client   plugin    handshake     params    results    what the plugin wants of the client
//	legacy   modern    Initialized   Claim     Legacy     input_required becomes requests; WithInput repeats the call
//	modern   legacy    Discovered    Unclaim   Modern     a request becomes input_required (Ask); its retry has Input
//
// Both eras have Failure for errors.
package bridge
