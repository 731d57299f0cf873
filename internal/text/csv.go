package text

import (
	"strconv"
	"strings"
)

// CSVCell is a value as a cell of a CSV file. What a spreadsheet would take for a
// formula gets an apostrophe in front, which makes it text; numbers stay numbers.
func CSVCell(value string) string {
	if value == "" || !strings.Contains("=+-@\t\r\n", value[:1]) {
		return value
	}
	if _, err := strconv.ParseFloat(value, 64); err == nil {
		return value
	}
	return "'" + value
}
