package session

import (
	"fmt"

	"berth/internal/cli/front"
)

// Version is this program's.
var Version = front.Version

// Kind is set when a release is built, and says in what it is published: wheel,
// tarball or package; empty: in nothing.
var Kind = ""

// ExitStatus carries an exit status through cobra without a message.
type ExitStatus int

func (s ExitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// Exit statuses that mean the same for every verb.
const (
	ExitFailed      ExitStatus = 1
	ExitUsage       ExitStatus = 2
	ExitInterrupted ExitStatus = 130
)
