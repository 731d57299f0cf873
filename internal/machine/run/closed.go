package run

// Closed is a Runner as after Close: it knows no supervisor and starts none. A queue
// that is only read has one.
func Closed() *Runner { return &Runner{set: &supervisors{closed: true}} }
