package jobfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"berth/internal/job"
	"berth/internal/text"
)

// CSVFields are the fields of a line of a CSV jobs file, in their order.
const CSVFields = "priority,script_path,conda_env,arguments,allowed_gpus"

// CSVJob is one job of a CSV jobs file: a Python script with its arguments.
type CSVJob struct {
	Line      int
	Priority  int // lower starts first, the reverse of berth's own order
	Script    string
	Conda     string   // empty: the python found on PATH
	Processes int      // of torchrun, one for each GPU; 0: the script runs under python
	Arguments string   // as written
	Words     []string // the arguments as a shell would split them
	Allow     []int    // ascending; nil: any GPU
}

// ParseCSV reads a CSV jobs file: one job per line, blank lines and # lines
// skipped. The error is an *Errors; the readable lines are returned with it.
func ParseCSV(name string, text []byte) ([]CSVJob, error) {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	var jobs []CSVJob
	var errs Errors
	for number := 1; len(text) > 0; number++ {
		raw, rest, _ := bytes.Cut(text, []byte{'\n'})
		text = rest
		if number > maxLines {
			errs.Add(name, number, fmt.Sprintf("expected at most %d lines, found more", maxLines))
			break
		}
		if raw = trim(raw); len(raw) == 0 || raw[0] == '#' {
			continue
		}
		j, err := parseCSVLine(raw)
		if err != nil {
			errs.Add(name, number, err.Error())
			continue
		}
		j.Line = number
		jobs = append(jobs, j)
	}
	if len(errs.Problems) > 0 {
		return jobs, &errs
	}
	return jobs, nil
}

func parseCSVLine(raw []byte) (CSVJob, error) {
	if len(raw) > maxLineBytes {
		return CSVJob{}, fmt.Errorf("expected at most %d bytes in a line, found %d", maxLineBytes, len(raw))
	}
	// Copy the line, so that a job does not keep the whole file in memory.
	fields, err := cutFields(string(raw))
	if err != nil {
		return CSVJob{}, err
	}
	if len(fields) < 2 {
		return CSVJob{}, fmt.Errorf("expected %s (at least the first two), found one field", CSVFields)
	}
	for len(fields) < 5 {
		fields = append(fields, "")
	}
	n, typed := processes(fields[argumentsField])
	if typed {
		fields = append(slices.Delete(fields, argumentsField, argumentsField+1), "")
	}
	j := CSVJob{Script: fields[1], Conda: fields[2], Processes: n, Arguments: fields[3]}
	if j.Priority, err = parseCSVPriority(fields[0]); err != nil {
		return CSVJob{}, err
	}
	if j.Allow, err = parseCSVAllow(fields[4]); err != nil {
		return CSVJob{}, fmt.Errorf("allowed_gpus: %w; put arguments with commas in quotes", err)
	}
	if j.Words, err = text.ShellWords(j.Arguments, false); err != nil {
		return CSVJob{}, fmt.Errorf("arguments: %w", err)
	}
	return j, j.Check()
}

func parseCSVPriority(field string) (int, error) {
	n, err := strconv.ParseInt(field, 10, 64)
	if err != nil || n < -math.MaxInt32 || n > math.MaxInt32 {
		return 0, fmt.Errorf("priority: %w", text.Mismatch(field, "a whole number (lower starts first)"))
	}
	return int(n), nil
}

// parseCSVAllow reads the GPUs a job may use. Repeated ids count once, and
// commas that a spreadsheet left at the end are ignored.
func parseCSVAllow(field string) ([]int, error) {
	field = strings.TrimRight(field, ", \t")
	if field == "" {
		return nil, nil
	}
	var ids []int
	for part := range strings.SplitSeq(field, ",") {
		some, err := ParseIDs(part)
		if err != nil {
			return nil, text.Mismatch(field, allowedIDs)
		}
		ids = append(ids, some...)
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// Check refuses values that a line of the file cannot hold, or that a program
// cannot be passed.
func (j CSVJob) Check() error {
	if j.Script == "" {
		return fmt.Errorf("script_path: expected the path of a Python script, found nothing")
	}
	for _, written := range []string{j.Script, j.Conda, j.Arguments} {
		if strings.ContainsAny(written, "\x00\n") {
			return fmt.Errorf("expected one line of text, found a line end or a NUL byte in %s", text.Found(written))
		}
	}
	words, err := text.ShellWords(j.Arguments, false)
	if err != nil {
		return fmt.Errorf("arguments: %w", err)
	}
	for _, word := range append(words, j.Script) {
		if err := checkWord(word); err != nil {
			return err
		}
	}
	return nil
}

// Key is what makes two lines the same job: the script, its environment, and
// the arguments in their order.
func (j CSVJob) Key() string {
	words := append([]string{j.Script, j.Conda}, j.Words...)
	if j.Processes > 0 {
		words = append(words, "torchrun", strconv.Itoa(j.Processes))
	}
	sum := sha256.Sum256([]byte(strings.Join(words, "\x00")))
	return hex.EncodeToString(sum[:8])
}

// Spec is the line as a job of berth: the script under python, on as much of a
// GPU as its model needs, or under torchrun. --cuda tells a script under python
// which GPUs it got.
func (j CSVJob) Spec(sizes Sizes) (job.Spec, error) {
	spec := job.Defaults()
	spec.Argv = append([]string{"python", "-u", j.Script}, j.Words...)
	spec.Conda, spec.Allow, spec.Priority = j.Conda, slices.Clone(j.Allow), -j.Priority
	spec.Inject = "--cuda=physical"
	need, _ := sizes.of(j.Words)
	spec.GPUs, spec.Share, spec.VRAMMiB = need.GPUs, need.Share, need.VRAMMiB
	if n := j.Processes; n > 0 { // each process takes its GPU by its rank
		spec.Argv = append([]string{"torchrun", "--nnodes=1", "--nproc-per-node=" + strconv.Itoa(n), j.Script}, j.Words...)
		spec.GPUs, spec.Share, spec.VRAMMiB, spec.Inject = n, 0, 0, ""
	}
	return spec, checkSpec(&spec, true)
}
