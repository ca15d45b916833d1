package slot

// toolInputs are the hashes of the input schemas of a catalog's tools. Every call looks for one, and some servers have
// a thousand.
type toolInputs struct {
	of     *Catalog
	byName map[string]string
}

// inputLocked returns the hash of the input schema that the request's tool has on a generation; "" if its build
// has not listed yet, and what is shown to the client is another build's list.
func (s *Slot) inputLocked(g *generation, r *Request) string {
	c := s.catalogs[r.Session.Profile()]
	if c == nil || c.build != g.build.SHA256 {
		return ""
	}
	known := s.inputs[r.Session.Profile()]
	if known.of != c {
		known = toolInputs{c, make(map[string]string, len(c.Tools))}
		for _, e := range c.Tools {
			known.byName[e.Key] = e.InputSchema
		}
		s.inputs[r.Session.Profile()] = known
	}
	return known.byName[r.Tool]
}

// sameToolLocked reports whether the request's tool is known to take the same input on g as when it was first sent.
func (s *Slot) sameToolLocked(g *generation, r *Request) bool {
	return r.schema != "" && s.inputLocked(g, r) == r.schema
}
