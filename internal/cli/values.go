package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"berth/internal/text"
)

// size is a flag for an amount of memory in MiB that may also be nothing.
type size int64

var _ pflag.Value = (*size)(nil)

const expectedSizes = "0 or a size such as 512 (MiB), 1G or 1.5T"

// Set takes what a jobs file takes, and 0.
func (s *size) Set(written string) error {
	if trimmed := strings.TrimSpace(written); trimmed != "" && strings.Trim(trimmed, "0") == "" {
		*s = 0
		return nil
	}
	mib, err := text.ParseSize(written)
	if err != nil {
		return errors.New(expectedSizes)
	}
	*s = size(mib)
	return nil
}

func (s *size) String() string { return strconv.FormatInt(int64(*s), 10) }

// Type is the word for the value in the help.
func (s *size) Type() string { return "size" }

// expected says what a flag takes, in plain words rather than in those of the
// package that could not parse the value.
func expected(flag *pflag.Flag, cause error) string {
	switch flag.Value.Type() {
	case "int", "int64":
		return "a whole number"
	case "float64":
		return "a number such as 0.1"
	case "bool":
		return "true, false, or the flag without a value"
	}
	return cause.Error()
}

// badValue is the complaint about a value that its flag could not read.
func badValue(err *pflag.InvalidValueError) string {
	return fmt.Sprintf("--%s: expected %s, found %q", err.GetFlag().Name, expected(err.GetFlag(), err.Unwrap()), err.GetValue())
}

// plainNumber writes a number as a person would.
func plainNumber(value float64) string {
	if value > -1e15 && value < 1e15 {
		return strconv.FormatFloat(value, 'f', -1, 64)
	}
	return strconv.FormatFloat(value, 'g', -1, 64)
}
