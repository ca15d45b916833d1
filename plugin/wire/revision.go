package wire

// The revisions of MCP at which something changes for a gateway. Revisions are dates, so they compare as strings.
const (
	// RevisionModern is the first without a handshake: each request says what its client is and can do.
	RevisionModern = "2026-07-28"
	// RevisionLegacy is the last with a handshake, and what is agreed where the other side asks for an unknown one.
	RevisionLegacy = "2025-11-25"
	// RevisionBatches is the only one whose servers must accept arrays of envelopes, and the first in which a server
	// says that it completes arguments.
	RevisionBatches = "2025-03-26"
)

// Revisions returns every revision of MCP that is spoken, newest first. The slice is the caller's.
func Revisions() []string {
	return []string{RevisionModern, RevisionLegacy, "2025-06-18", RevisionBatches, "2024-11-05"}
}
