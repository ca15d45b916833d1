package history

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Violation is one broken promise.
type Violation struct {
	Invariant string // "I1"
	Text      string
}

func (v Violation) String() string { return v.Invariant + ": " + v.Text }

// maxViolations of one invariant are listed: more say nothing new.
const maxViolations = 20

// checker collects what is wrong with a history.
type checker struct {
	*History
	found []Violation
	count map[string]int
}

// Check decides all invariants.
func (h *History) Check() []Violation {
	c := &checker{History: h, count: map[string]int{}}
	c.answers()
	c.strays()
	c.ledger()
	c.versions()
	c.lists()
	for invariant, n := range c.count {
		if n > maxViolations {
			c.found = append(c.found, Violation{invariant, fmt.Sprintf("and %d more", n-maxViolations)})
		}
	}
	slices.SortStableFunc(c.found, func(a, b Violation) int {
		return slices.Compare([]byte(a.Invariant), []byte(b.Invariant))
	})
	return c.found
}

func (c *checker) fail(invariant, format string, args ...any) {
	if c.count[invariant]++; c.count[invariant] <= maxViolations {
		c.found = append(c.found, Violation{invariant, fmt.Sprintf(format, args...)})
	}
}

// answers decides I1, the second half of I2, and I9.
func (c *checker) answers() {
	for _, op := range c.Ops {
		if op.Answers == 0 && !op.Cancelled {
			c.fail("I1", "%s of %s was never answered", op.Nonce, op.Plugin)
		}
		if op.Answers > 1 {
			c.fail("I2", "%s of %s was answered %d times", op.Nonce, op.Plugin, op.Answers)
		}
		if c.UpgradesOnly && op.Answers > 0 && op.Outcome != OK {
			c.fail("I9", "%s of %s ended as %s: %s", op.Nonce, op.Plugin, op.Outcome, op.Detail)
		}
	}
}

// strays decides the first half of I2, I5 and I6: an answer whose id means the same as one that was asked has lost bytes on its way.
func (c *checker) strays() {
	for _, line := range c.BadLines {
		c.fail("I5", "%s", line)
	}
	if len(c.Strays) == 0 {
		return
	}
	asked := map[any]string{}
	for _, op := range c.Ops {
		if v, ok := meaning(op.ID); ok {
			asked[v] = op.ID
		}
	}
	for _, id := range c.Strays {
		v, ok := meaning(id)
		if origin := asked[v]; ok && origin != "" {
			c.fail("I6", "the id %s came back as %s", origin, id)
		} else {
			c.fail("I2", "an answer to the id %s, which was never asked", id)
		}
	}
}

// meaning is what an id is to a program that decodes it: equal for 1 and 1.0, and for "1" too, since some languages do not tell them apart.
func meaning(id string) (any, bool) {
	var v any
	if json.Unmarshal([]byte(id), &v) != nil {
		return nil, false
	}
	switch v := v.(type) {
	case float64:
		return fmt.Sprint(v), true
	case string:
		return v, true
	}
	return nil, false
}

// ledger decides I3 and I4.
func (c *checker) ledger() {
	times := map[string]int{}
	for _, entry := range c.Ledger {
		times[entry.Nonce]++
	}
	for _, op := range c.Ops {
		n := times[op.Nonce]
		delete(times, op.Nonce)
		if op.Kind == Once && n > 1 {
			c.fail("I3", "%s of %s was executed %d times", op.Nonce, op.Plugin, n)
		}
		if op.Kind == Read || op.Answers == 0 {
			continue
		}
		switch {
		case op.Outcome == OK && n == 0:
			c.fail("I4", "%s of %s is said to be done and is not in the ledger", op.Nonce, op.Plugin)
		case op.Outcome == NotRun && n > 0:
			c.fail("I4", "%s of %s is said not to have run and is in the ledger", op.Nonce, op.Plugin)
		}
	}
	for _, nonce := range slices.Sorted(maps.Keys(times)) {
		c.fail("I4", "%s is in the ledger %d times and was never asked", nonce, times[nonce])
	}
}
