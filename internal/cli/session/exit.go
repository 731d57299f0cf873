package session

import "fmt"

// Version is set when a release is built.
var Version = "0.2.0"

// ExitStatus carries an exit status through cobra without a message.
type ExitStatus int

func (s ExitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// Exit statuses that mean the same for every verb.
const (
	ExitFailed      ExitStatus = 1
	ExitUsage       ExitStatus = 2
	ExitInterrupted ExitStatus = 130
)
