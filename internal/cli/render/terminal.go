package render

import (
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

func IsTerminal(file *os.File) bool {
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}

// TerminalSize asks the terminal each time, since it may be resized. The default
// is 80 by 24.
func TerminalSize(out io.Writer) (columns, rows int) {
	columns, rows = 80, 24
	file, ok := out.(*os.File)
	if !ok {
		return columns, rows
	}
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err == nil && size.Col > 0 {
		columns = int(size.Col)
	}
	if err == nil && size.Row > 0 {
		rows = int(size.Row)
	}
	return columns, rows
}

// StdoutIsTerminal reports whether a live view can be drawn.
func StdoutIsTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	return ok && IsTerminal(file) && os.Getenv("TERM") != "dumb" && os.Getenv("TERM") != ""
}

// SpeaksUTF8 reports whether a terminal can be expected to show more than ASCII.
func SpeaksUTF8(getenv func(string) string) bool {
	if getenv("TERM") == "dumb" {
		return false
	}
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if value := getenv(name); value != "" {
			value = strings.ToLower(value)
			return strings.Contains(value, "utf-8") || strings.Contains(value, "utf8")
		}
	}
	return false
}
