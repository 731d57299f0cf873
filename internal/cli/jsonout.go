package cli

import (
	"encoding/json"
	"io"
	"runtime/debug"

	"berth/internal/text"
)

// printJSON writes a value as one line of JSON.
func printJSON(out io.Writer, value any) error {
	w := &text.JSONWriter{Out: out}
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return err
	}
	return w.Flush()
}

// rareCollections is for a command that is over soon and has much in memory, such as
// a long list: what is garbage may stay, up to a bound.
func rareCollections() {
	debug.SetGCPercent(400)
	debug.SetMemoryLimit(256 << 20)
}

// notNull turns nil into an empty list, so that JSON says [] and not null.
func notNull[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
