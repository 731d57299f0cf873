package jobfile

import "strings"

// WithoutAfter is a good line of a jobs file without its dependencies, for a file
// that lacks the lines they name.
func WithoutAfter(line string) (string, error) {
	line = string(trim([]byte(line)))
	if !OpensBlock(line) {
		return line, nil
	}
	kept, rest := []string{}, line[1:]
	for {
		rest = strings.TrimLeft(rest, " \t")
		if rest == "" {
			return "", errUnclosed
		}
		if rest[0] == ']' {
			break
		}
		f, _, after, err := cutPair(rest)
		if err != nil {
			return "", err
		}
		if f.Key != "after" {
			kept = append(kept, rest[:len(rest)-len(after)])
		}
		rest = after
	}
	command := strings.TrimLeft(rest[1:], " \t\r")
	if len(kept) == 0 && !OpensBlock(command) {
		return command, nil
	}
	if len(kept) == 0 {
		kept = []string{"priority=0"} // the default: without a block the command would be one
	}
	return "[" + strings.Join(kept, " ") + "] " + command, nil
}
