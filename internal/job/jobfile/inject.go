package jobfile

import (
	"fmt"
	"strings"

	"berth/internal/job"
	"berth/internal/text"
)

const (
	allowedInject  = "a flag of the command with physical or local, such as --cuda=physical, or no"
	maxInjectBytes = 64
)

// injectForm allows only characters that mean nothing to a shell, because the
// flag becomes a word of shell lines.
var injectForm = text.Pattern(`^-+[A-Za-z0-9_.][A-Za-z0-9_.-]*=(?i:physical|local)$`)

// parseInject reads FLAG=physical or FLAG=local.
func parseInject(value string) (string, error) {
	if strings.EqualFold(value, "no") {
		return "", nil
	}
	if len(value) > maxInjectBytes || !injectForm().MatchString(value) {
		return "", text.Mismatch(value, allowedInject)
	}
	flag, mode := job.CutInject(value)
	return flag + "=" + strings.ToLower(mode), nil
}

// CheckInject refuses a shell line to which the flag cannot be appended: one
// that has it already, and one that does not end with its command's arguments.
func CheckInject(spec *job.Spec) error {
	if spec.Inject == "" || spec.Shell == "" {
		return nil
	}
	flag, _ := job.CutInject(spec.Inject)
	words := strings.FieldsFunc(spec.Shell, func(r rune) bool { return strings.ContainsRune(" \t\r\n;|&()<>'\"`", r) })
	for _, word := range words {
		if word == flag || strings.HasPrefix(word, flag+"=") {
			return fmt.Errorf("inject_gpus: expected a shell line without %[1]s, found %[1]s in it", flag)
		}
	}
	if !endsInCommand(spec.Shell) {
		return fmt.Errorf("inject_gpus: expected a shell line that ends with the arguments of its command, so that %s can be appended; found a pipe, a comment or an open end", flag)
	}
	return nil
}

// endsInCommand reports whether a word appended to a shell line would be an
// argument of its command. It scans the line like a shell and says no when in
// doubt.
func endsInCommand(line string) bool {
	line = strings.TrimRight(line, " \t\r\n")
	var quote byte
	last := byte(' ') // outside of quotes, before i
	for i := 0; i < len(line); i++ {
		c := line[i]
		next := byte(0)
		if i+1 < len(line) {
			next = line[i+1]
		}
		switch {
		case c == '\\' && quote != '\'':
			i++
			c = 'x'
		case quote != 0:
			if c == quote {
				quote = 0
			}
			c = 'x'
		case c == '\'' || c == '"' || c == '`':
			quote, c = c, 'x'
		case c == '|' && last != '|' && last != '>' && next != '|',
			c == '#' && strings.IndexByte(" \t\n;&|(", last) >= 0,
			c == '<' && last == '<':
			return false
		}
		last = c
	}
	words := strings.Fields(line)
	if quote != 0 || len(words) == 0 || strings.IndexByte(";&|(){}<>", last) >= 0 {
		return false
	}
	switch words[len(words)-1] {
	case "done", "fi", "esac":
		return false
	}
	return true
}
