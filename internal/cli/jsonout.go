package cli

import (
	"encoding/json"
	"io"

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

// notNull turns nil into an empty list, so that JSON says [] and not null.
func notNull[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
