package jobfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"berth/internal/job"
	"berth/internal/job/sweep"
)

// Bounds on a file. A larger one is a mistake (a log, a data set), and is
// refused before it fills memory.
const (
	maxLineBytes = 1 << 20
	maxLines     = 1_000_000
	// What the kernel accepts as one argument; a shell line is one.
	maxCommandBytes = 128<<10 - 1
	maxSweepBytes   = 64 << 20 // of the commands of one line's trials
)

// Line is one job of a jobs file.
type Line struct {
	Number     int // of the line, from 1
	Command    string
	Spec       job.Spec
	Key        string // identity: what it executes, and its occurrence
	Occurrence int    // from 1, among lines that execute the same
	Note       string // as in Asked
}

// File is the content of a jobs file.
type File struct {
	Lines []*Line
	// Unterminated is set if the last line is a job without a newline: an
	// editor may still be writing it.
	Unterminated bool
}

// Parse reads a jobs file. Each line starts from the defaults and changes what
// its block says. The error is an *Errors; the readable lines and Unterminated
// are returned with it, so that a caller who watches a growing file can give a
// half-written last line time.
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
			p.errs.Add(name, number, fmt.Sprintf("expected at most %d lines, found more", maxLines))
			break
		}
		if raw = trim(raw); len(raw) == 0 || raw[0] == '#' {
			continue
		}
		p.file.Unterminated = !terminated
		if err := p.line(number, raw); err != nil {
			p.errs.Add(name, number, err.Error())
		}
	}
	if len(p.errs.Problems) == 0 {
		// Others may wait for a line that could not be read, so names are
		// checked only once every line is good.
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
	asking      asking // of the line being read
	file        File
	occurrences map[string]int
	errs        Errors
}

func (p *parser) line(number int, raw []byte) error {
	if len(raw) > maxLineBytes {
		return fmt.Errorf("expected at most %d bytes in a line, found %d", maxLineBytes, len(raw))
	}
	if bytes.IndexByte(raw, 0) >= 0 {
		return fmt.Errorf("expected text, found a NUL byte")
	}
	// Copy the line: a job that lives for days must not keep in memory every
	// version of the file it was read from.
	command := string(raw)
	line := &Line{Number: number, Spec: p.defaults}
	if OpensBlock(command) {
		p.asking = asking{Asked: Asked{Spec: p.defaults}, inFile: true}
		var err error
		command, err = p.asking.readBlock(command)
		line.Spec, line.Note = p.asking.Spec, p.asking.Note
		if err == nil && (command == "" || command[0] == '#') {
			err = fmt.Errorf("expected [key=value ...] COMMAND, found no command")
		}
		if err != nil {
			return err
		}
	}
	if OpensBlock(string(raw)) && len(p.asking.axes) > 0 {
		return p.trials(line, command)
	}
	return p.add(line, command)
}

// trials adds a line for each trial of a sweep.
func (p *parser) trials(of *Line, command string) error {
	params, err := sweep.Trials(p.asking.axes, maxLines-len(p.file.Lines))
	if err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	spec := &of.Spec
	maker, err := sweep.NewMaker(&job.Template{Shell: command, Name: spec.Name, Dir: spec.Dir, Output: spec.Output, Env: spec.Env}, sweep.Names(p.asking.axes))
	if err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	size := 0
	for _, trial := range params {
		made, err := maker.Make(trial)
		if err == nil && made.Name != "" {
			_, err = parseName(made.Name)
		}
		if size += len(made.Shell); err == nil && size > maxSweepBytes {
			err = fmt.Errorf("expected at most %d MiB of commands, found more: put the common parts into a script", maxSweepBytes>>20)
		}
		if err != nil {
			return fmt.Errorf("sweep: %w", err)
		}
		line := *of
		line.Spec.Name, line.Spec.Dir, line.Spec.Output, line.Spec.Env = made.Name, made.Dir, made.Output, made.Env
		line.Spec.Trial.Params = trial
		if err := p.add(&line, made.Shell); err != nil {
			return err
		}
	}
	return nil
}

// add adds a job.
func (p *parser) add(line *Line, command string) error {
	if len(command) > maxCommandBytes {
		return fmt.Errorf("expected at most %d bytes in a command, found %d: put it into a script", maxCommandBytes, len(command))
	}
	line.Command = command
	line.Spec.Shell, line.Spec.Argv = command, nil
	if err := CheckInject(&line.Spec); err != nil {
		return err
	}
	executed := Executed(&line.Spec)
	p.occurrences[executed]++
	line.Occurrence, line.Key = p.occurrences[executed], Key(executed, p.occurrences[executed])
	p.file.Lines = append(p.file.Lines, line)
	return nil
}

// Executed is what a shell line executes: its command, and what its block says of
// its directory and environment. What the job needs and how it is called are not in
// it.
func Executed(spec *job.Spec) string {
	if spec.Dir == "" && spec.Venv == "" && spec.Conda == "" && spec.Setup == "" && spec.Inject == "" && len(spec.Env) == 0 {
		return spec.Command() // most lines
	}
	executed, asked := spec.Command(), Asked{Spec: *spec}
	for _, f := range fields {
		if f.Runs && f.write(&asked) != "" {
			executed += "\x00" + f.Key + "=" + f.write(&asked)
		}
	}
	variables := make([]string, len(spec.Env))
	for i, v := range spec.Env {
		variables[i] = "\x00" + envPrefix + v.Key + "=" + v.Value
	}
	slices.Sort(variables)
	return executed + strings.Join(variables, "")
}

// Key identifies a line by what it executes and by how many such lines precede
// it.
func Key(executed string, occurrence int) string {
	sum := sha256.Sum256([]byte(executed))
	var b strings.Builder
	b.Grow(16 + 1 + 6)
	var digest [16]byte
	hex.Encode(digest[:], sum[:8])
	b.Write(digest[:])
	b.WriteByte('#')
	b.WriteString(strconv.Itoa(occurrence))
	return b.String()
}

// countJobs lets Parse allocate its list once.
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
