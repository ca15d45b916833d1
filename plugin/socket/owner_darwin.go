package socket

func asGoodAsRoot(owner int) bool { return owner == 0 }
