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
