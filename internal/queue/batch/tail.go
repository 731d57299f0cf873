package batch

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// How much is shown of a log.
const (
	saidLines = 5
	saidBytes = 8 << 10
)

// LastLines are the last lines of a log; none if it cannot be read at once. Of a
// line that was redrawn, as progress bars are, the last version counts.
func LastLines(path string) []string {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	from := max(0, info.Size()-saidBytes)
	data := make([]byte, min(info.Size(), saidBytes))
	n, err := file.ReadAt(data, from)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil
	}
	data = data[:n]
	if first := bytes.IndexByte(data, '\n'); from > 0 && first >= 0 {
		data = data[first+1:] // the first line is only a part
	}
	var lines []string
	for line := range strings.SplitSeq(string(data), "\n") {
		line = strings.TrimRight(line, "\r \t")
		if line = line[strings.LastIndexByte(line, '\r')+1:]; line != "" {
			lines = append(lines, line)
		}
	}
	return lines[max(0, len(lines)-saidLines):]
}
