package sdk

// Retirer is filled in by retire.go's full version.
type Retirer struct{}

// Work runs f.
func (r *Retirer) Work(f func() error) error { return f() }
