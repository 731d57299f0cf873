package access

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// What one user can write into the audit log. A line has about 200 bytes. With
// this, a user who does nothing else takes more than a month to push out what
// others did.
const (
	accountBytes  = 4 << 20        // at once
	accountFills  = 24 * time.Hour // from nothing to that
	accountWindow = time.Minute    // how long requests without a line of their own are counted
	maxRepeats    = 1000           // refusals of one window that are recognised again
)

// account is one user's use of the audit log. A request is counted and gets no
// line of its own if
//   - it is refused and a line of this window says the same, or
//   - the user has written too much lately.
//
// At the end of the window a line for each such refusal, and one for everything
// else, tell how many there were.
type account struct {
	left    float64 // bytes that the user may still write
	at      time.Time
	refused map[string]*Entry // the refusals with a line in this window; Requests counts further ones
	more    Entry             // the line for everything else
	actions map[string]int    // what was done in it
	window  *time.Timer       // runs while there is something to settle
}

// accountOf is the account of the user who made the Entry.
func (a *Audit) accountOf(e *Entry) *account {
	acc := a.accounts[e.UID]
	if acc == nil {
		acc = &account{left: accountBytes, at: e.Time, refused: map[string]*Entry{}, actions: map[string]int{}}
		a.accounts[e.UID] = acc
	}
	if acc.window == nil {
		acc.window = time.AfterFunc(accountWindow, func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			if !a.over {
				a.endWindow(acc)
			}
		})
	}
	return acc
}

// lineFor returns the line to write now, or nil if the Entry is only counted.
func (acc *account) lineFor(e Entry) []byte {
	content := ""
	if e.Result != OK {
		content = fmt.Sprintf("%q %q %q %q %q %d %s", e.Via, e.From, e.Action, e.Detail, e.Result, e.Count, e.Jobs)
		if said := acc.refused[content]; said != nil {
			said.Requests++
			said.Time, said.PID = e.Time, e.PID
			return nil
		}
	}
	line := e.line()
	if !acc.pay(e.Time, len(line)) {
		acc.count(e, 1)
		return nil
	}
	if content != "" && len(acc.refused) < maxRepeats {
		acc.refused[content] = &e
	}
	return line
}

// pay reports whether the user may write so many bytes.
func (acc *account) pay(now time.Time, bytes int) bool {
	if since := now.Sub(acc.at); since > 0 {
		acc.left = min(accountBytes, acc.left+accountBytes*since.Seconds()/accountFills.Seconds())
	}
	acc.at = now
	if acc.left < float64(bytes) {
		return false
	}
	acc.left -= float64(bytes)
	return true
}

// count adds requests to the line for everything else.
func (acc *account) count(e Entry, requests int) {
	acc.more.Time, acc.more.UID, acc.more.User = e.Time, e.UID, e.User
	acc.more.Requests += requests
	if e.Result != OK {
		e.Action += " refused"
	}
	acc.actions[e.Action] += requests
}

// endWindow ends an account's window and writes what was only counted in it.
func (a *Audit) endWindow(acc *account) {
	acc.window.Stop()
	for _, e := range slices.SortedFunc(maps.Values(acc.refused), func(a, b *Entry) int { return a.Time.Compare(b.Time) }) {
		if e.Requests == 0 {
			continue
		}
		if line := e.line(); acc.pay(e.Time, len(line)) {
			a.append(e.Time, line)
		} else {
			acc.count(*e, e.Requests)
		}
	}
	if e := acc.more; e.Requests > 0 {
		var actions []string
		for _, action := range slices.Sorted(maps.Keys(acc.actions)) {
			actions = append(actions, fmt.Sprintf("%d %s", acc.actions[action], action))
		}
		e.Via, e.Action, e.Detail, e.Result = "daemon", "audit", strings.Join(actions, ", "), "summarised"
		a.append(e.Time, e.line())
	}
	acc.window, acc.more = nil, Entry{}
	clear(acc.refused)
	clear(acc.actions)
}
