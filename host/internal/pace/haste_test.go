package pace

import "testing"

func TestHaste(t *testing.T) {
	h := NewHaste()
	hurried := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	before := h.C()
	if hurried(before) {
		t.Error("a new one hurries")
	}
	h.Hurry()
	h.Hurry()
	if !hurried(before) || !hurried(h.C()) {
		t.Error("whoever paused was not told of the haste, or whoever comes later")
	}
	h.Calm()
	h.Calm()
	if again := h.C(); hurried(again) {
		t.Error("there is haste after it ended")
	} else if h.Hurry(); !hurried(again) {
		t.Error("it does not begin a second time")
	}
}
