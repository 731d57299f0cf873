package cluster

// Programs is where berth's own programs were built, for the tests of the whole
// binary.
func Programs() string { return programs }
