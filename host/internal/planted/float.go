package planted

import "encoding/json"

// Float is what IDFloat does to an id.
func Float(id []byte) []byte {
	var number float64
	if json.Unmarshal(id, &number) != nil {
		return id
	}
	out, err := json.Marshal(number)
	if err != nil {
		return id
	}
	return out
}
