package machine

// Part is a part of a machine that can fail to open.
type Part int

// The parts, in the order in which they are opened.
const (
	Store Part = iota
	LogFile
	LogLevel
	Cards
	Supervisors
	Ledger
)

// Error is why a machine could not be opened. Its text is that of its cause:
// what a person is told beside it depends on who asked.
type Error struct {
	Part Part
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }
