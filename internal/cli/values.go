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

const allowedSizes = "0 or more MiB, or a size with a unit M, G or T: 512, 1G, 1.5GiB"

// Set takes what a jobs file takes, and 0.
func (s *size) Set(written string) error {
	if trimmed := strings.TrimSpace(written); trimmed != "" && strings.Trim(trimmed, "0") == "" {
		*s = 0
		return nil
	}
	mib, err := text.ParseSize(written)
	if err != nil {
		return errors.New("allowed " + allowedSizes)
	}
	*s = size(mib)
	return nil
}

func (s *size) String() string { return strconv.FormatInt(int64(*s), 10) }

// Type is the word for the value in the help.
func (s *size) Type() string { return "size" }

// allowed says what a flag takes, in words rather than in those of the
// package that could not read the value.
func allowed(flag *pflag.Flag, cause error) string {
	switch flag.Value.Type() {
	case "int", "int64":
		return "allowed a whole number"
	case "float64":
		return "allowed a number such as 0.1"
	case "bool":
		return "allowed true or false, or the flag alone"
	}
	return cause.Error()
}

// badValue is the complaint about a value that its flag could not read.
func badValue(err *pflag.InvalidValueError) string {
	return fmt.Sprintf("--%s: found %q, %s", err.GetFlag().Name, err.GetValue(), allowed(err.GetFlag(), err.Unwrap()))
}

// plainNumber writes a number as a person would.
func plainNumber(value float64) string {
	if value > -1e15 && value < 1e15 {
		return strconv.FormatFloat(value, 'f', -1, 64)
	}
	return strconv.FormatFloat(value, 'g', -1, 64)
}
