package jobfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"berth/internal/job"
)

// Bounds on a file. What passes them is a mistake (a log, a data set), and is
// refused before it fills memory.
const (
	maxLineBytes = 1 << 20
	maxLines     = 1_000_000
	// What the kernel takes as one argument, which a shell line is.
	maxCommandBytes = 128<<10 - 1
)

// Line is one job of a jobs file.
type Line struct {
	Number     int // of the line, from 1
	Command    string
	Spec       job.Spec
	Key        string // identity: the command's text and its occurrence
	Occurrence int    // from 1, among lines with the same command
}

// File is a jobs file as it stands.
type File struct {
	Lines []*Line
	// Unterminated is set where the last line is not blank, not a comment,
	// and has no newline: its writer may not be done with it.
	Unterminated bool
}

// Parse reads a jobs file. Each line starts from the defaults and changes
// what its block says. The error is an *Errors; the lines that could be read
// come back beside it, and Unterminated holds too, so that a caller who looks
// at a growing file can give a half-written last line time.
func Parse(name string, text []byte, defaults job.Spec) (File, error) {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	jobs := countJobs(text)
	p := parser{name: name, defaults: defaults, occurrences: make(map[string]int, jobs)}
	p.file.Lines = make([]*Line, 0, jobs)
	number := 0
	for len(text) > 0 {
		raw, rest, terminated := bytes.Cut(text, []byte{'\n'})
		text = rest
		if number++; number > maxLines {
			p.errs.add(name, number, fmt.Sprintf("found more lines, allowed %d", maxLines))
			break
		}
		if raw = trim(raw); len(raw) == 0 || raw[0] == '#' {
			continue
		}
		p.file.Unterminated = !terminated
		if err := p.line(number, raw); err != nil {
			p.errs.add(name, number, err.Error())
		}
	}
	if len(p.errs.Problems) == 0 {
		// A line that could not be read may be the one others wait for, so
		// names are looked at only once every line is good.
		checkAfter(name, p.file.Lines, &p.errs)
	}
	if len(p.errs.Problems) > 0 {
		return p.file, &p.errs
	}
	return p.file, nil
}

type parser struct {
	name        string
	defaults    job.Spec
	asking      asking // the line that is being read
	file        File
	occurrences map[string]int
	errs        Errors
}

func (p *parser) line(number int, raw []byte) error {
	if len(raw) > maxLineBytes {
		return fmt.Errorf("found a line of %d bytes, allowed %d", len(raw), maxLineBytes)
	}
	if bytes.IndexByte(raw, 0) >= 0 {
		return fmt.Errorf("found a NUL byte, allowed text")
	}
	// The line is copied out of the file: a job that lives for days must not
	// hold every version of the file it was once read from.
	command := string(raw)
	line := &Line{Number: number, Spec: p.defaults}
	if opensBlock(command) {
		p.asking = asking{Asked: Asked{Spec: p.defaults}, inFile: true}
		var err error
		command, err = p.asking.readBlock(command)
		line.Spec = p.asking.Spec
		if err == nil && (command == "" || command[0] == '#') {
			err = fmt.Errorf("found a block without a command, allowed [key=value ...] COMMAND")
		}
		if err != nil {
			return err
		}
	}
	if len(command) > maxCommandBytes {
		return fmt.Errorf("found a command of %d bytes, allowed %d: put it into a script", len(command), maxCommandBytes)
	}
	occurrence := p.occurrences[command] + 1
	p.occurrences[command] = occurrence
	line.Command = command
	line.Spec.Shell, line.Spec.Argv = command, nil
	if err := CheckInject(&line.Spec); err != nil {
		return err
	}
	line.Occurrence, line.Key = occurrence, Key(command, occurrence)
	p.file.Lines = append(p.file.Lines, line)
	return nil
}

// Key is the identity of a line: what it runs, and how many equal lines stand
// above it. Attributes are not part of it.
func Key(command string, occurrence int) string {
	sum := sha256.Sum256([]byte(command))
	var b strings.Builder
	b.Grow(16 + 1 + 6)
	var digest [16]byte
	hex.Encode(digest[:], sum[:8])
	b.Write(digest[:])
	b.WriteByte('#')
	b.WriteString(strconv.Itoa(occurrence))
	return b.String()
}

// countJobs sizes the list beforehand, so that it is not copied as it grows.
func countJobs(text []byte) int {
	count := 0
	for len(text) > 0 && count < maxLines {
		raw, rest, _ := bytes.Cut(text, []byte{'\n'})
		text = rest
		if raw = trim(raw); len(raw) > 0 && raw[0] != '#' {
			count++
		}
	}
	return count
}

func trim(line []byte) []byte { return bytes.Trim(line, " \t\r") }
