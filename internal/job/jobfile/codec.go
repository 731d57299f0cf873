package jobfile

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"berth/internal/job"
	"berth/internal/queue/notify"
	"berth/internal/text"
)

// Bounds on counts and words.
const (
	maxRetries   = 1000
	maxCPUs      = 1 << 16
	maxNameBytes = 128
	maxEnv       = 1024 // explicit variables of one job
)

// codec reads a field's value into a job, and writes it back in the same
// grammar.
type codec struct {
	read  func(a *asking, value string) error
	write func(a *Asked) string // nil: the job does not keep the value as one piece
	reset func(a *Asked)        // back to the default; nil: it has none that is known later
}

// parsed is a field that is stored in one place of the job.
func parsed[T any](at func(*Asked) *T, parse func(string) (T, error), format func(T) string) codec {
	return codec{
		read: func(a *asking, value string) error {
			parsed, err := parse(value)
			if err == nil {
				*at(&a.Asked) = parsed
			}
			return err
		},
		write: func(a *Asked) string { return format(*at(a)) },
		reset: func(a *Asked) { fresh := Asked{Spec: job.Defaults()}; *at(a) = *at(&fresh) },
	}
}

// anyText takes any text; other packages give it its meaning.
func anyText(at func(*Asked) *string) codec {
	return parsed(at, func(value string) (string, error) {
		if value == "" {
			return "", text.Mismatch(value, "text")
		}
		return value, nil
	}, asIs)
}

// directory has no default that the daemon knows: it was the caller's.
var directory = func() codec {
	c := anyText(func(a *Asked) *string { return &a.Spec.Dir })
	c.reset = nil
	return c
}()

func asIs(value string) string { return value }

func toggle(at func(*Asked) *bool) codec {
	return parsed(at, func(value string) (bool, error) {
		switch strings.ToLower(value) {
		case "yes", "true", "1":
			return true, nil
		case "no", "false", "0":
			return false, nil
		}
		return false, text.Mismatch(value, "yes, no, or the key alone")
	}, yesOrNo)
}

func yesOrNo(on bool) string {
	if on {
		return "yes"
	}
	return "no"
}

func whole(at func(*Asked) *int, low, high int) codec {
	return parsed(at, func(value string) (int, error) {
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < int64(low) || n > int64(high) {
			return 0, text.Mismatch(value, fmt.Sprintf("a whole number from %d to %d", low, high))
		}
		return int(n), nil
	}, strconv.Itoa)
}

func choice[T ~string](at func(*Asked) *T, choices ...T) codec {
	return parsed(at, func(value string) (T, error) {
		words := make([]string, len(choices))
		for i, choice := range choices {
			if strings.EqualFold(value, string(choice)) {
				return choice, nil
			}
			words[i] = string(choice)
		}
		return "", text.Mismatch(value, oneOf(words))
	}, func(word T) string { return string(word) })
}

func parseName(value string) (string, error) {
	if value == "" || len(value) > maxNameBytes || strings.IndexFunc(value, unicode.IsControl) >= 0 || !utf8.ValidString(value) {
		return "", text.Mismatch(value, fmt.Sprintf("1 to %d bytes of text without control characters", maxNameBytes))
	}
	return value, nil
}

// parseSlurm takes options as they are; package slurm knows which are allowed.
func parseSlurm(value string) (string, error) {
	const most = 4096
	if value == "" || len(value) > most || strings.IndexFunc(value, unicode.IsControl) >= 0 || !utf8.ValidString(value) {
		return "", text.Mismatch(value, fmt.Sprintf("1 to %d bytes of options on one line", most))
	}
	return value, nil
}

// maxGroupBytes bounds the name of a group.
const maxGroupBytes = 64

// ParseGroup reads the name of a group: a word that needs no quotes anywhere.
func ParseGroup(value string) (string, error) {
	odd := func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", r)
	}
	if value == "" || len(value) > maxGroupBytes || strings.ContainsRune("._-", rune(value[0])) || strings.IndexFunc(value, odd) >= 0 {
		return "", text.Mismatch(value, fmt.Sprintf("at most %d letters, digits and the characters . _ -, beginning with a letter or digit", maxGroupBytes))
	}
	return value, nil
}

func readGPUs(a *asking, value string) (err error) {
	count, share, err := parseGPUs(value)
	if err != nil {
		return err
	}
	a.Spec.GPUs, a.Spec.Share, a.gpusGiven = count, share, true
	a.Note = roundedUp(value, count)
	return nil
}

// timeLimit also remembers whether there was a unit: people coming from Slurm write
// minutes.
var timeLimit = codec{
	read: func(a *asking, value string) (err error) {
		a.Spec.TimeLimit, err = text.ParseDuration(value)
		a.BareTime = strings.Trim(value, "0123456789") == ""
		return err
	},
	write: func(a *Asked) string { return text.FormatDuration(a.Spec.TimeLimit) },
	reset: func(a *Asked) { a.Spec.TimeLimit, a.BareTime = unset.Spec.TimeLimit, false },
}

func writeGPUs(a *Asked) string {
	if a.Spec.Share > 0 {
		return strconv.FormatFloat(a.Spec.Share, 'f', -1, 64)
	}
	return strconv.Itoa(a.Spec.GPUs)
}

// EstimatePrefix begins a value of vram that names a model to take the size of.
const EstimatePrefix = "estimate:"

// readVRAM sets one of a declared size, "auto" and a model to take it of.
func readVRAM(a *asking, value string) (err error) {
	var mib int64
	var auto bool
	var model string
	switch {
	case strings.EqualFold(value, "auto"):
		auto = true
	case strings.HasPrefix(value, EstimatePrefix):
		if model = value; model == EstimatePrefix {
			return text.Mismatch(value, "estimate:PATH")
		}
	default:
		if mib, err = text.ParseSize(value); err != nil {
			return text.Mismatch(value, "auto, or "+text.ExpectedSize)
		}
	}
	a.Spec.VRAMMiB, a.Spec.VRAMAuto, a.Spec.VRAMModel = mib, auto, model
	return nil
}

func writeVRAM(a *Asked) string {
	switch {
	case a.Spec.VRAMAuto:
		return "auto"
	case a.Spec.VRAMModel != "":
		return a.Spec.VRAMModel
	}
	return text.FormatSize(a.Spec.VRAMMiB)
}

func readSnapshot(a *asking, value string) error {
	if value == "" {
		return text.Mismatch(value, "a directory, auto or no")
	}
	a.Spec.Snapshot = job.Snapshot{Tree: SnapshotOf(value)}
	return nil
}

// SnapshotOf is what a value of the key snapshot asks for: job.SnapshotAuto, a
// directory, or nothing.
func SnapshotOf(value string) string {
	switch strings.ToLower(value) {
	case job.SnapshotAuto, "yes", "true", "1":
		return job.SnapshotAuto
	case "no", "false", "0":
		return ""
	}
	return value
}

func readSignal(a *asking, value string) error {
	name, before, err := parseSignal(value)
	if err == nil {
		a.Spec.WarnSignal, a.Spec.WarnBefore = name, before
	}
	return err
}

func writeSignal(a *Asked) string {
	if a.Spec.WarnSignal == "" {
		return ""
	}
	return a.Spec.WarnSignal + "@" + strings.TrimSuffix(text.FormatDuration(a.Spec.WarnBefore), "s")
}

// parsePreemptible reads a bare yes as park, which loses no work.
func parsePreemptible(value string) (job.Preemptible, error) {
	switch word := strings.ToLower(value); word {
	case "park", "yes", "true", "1":
		return job.PreemptByPark, nil
	case "requeue", "park,requeue":
		return job.Preemptible(word), nil
	case "no", "false", "0":
		return job.NotPreemptible, nil
	}
	return "", text.Mismatch(value, "park, requeue, park,requeue, no, or the key alone")
}

// maxCheckpoint bounds how long a job that saves its own work keeps its cards.
const maxCheckpoint = 7 * 24 * time.Hour

func parseCheckpoint(value string) (job.Checkpoint, error) {
	switch strings.ToLower(value) {
	case "term":
		return job.CheckpointTold, nil
	case "no":
		return 0, nil
	}
	every, err := text.ParseDuration(value)
	if err != nil || every < time.Second || every > maxCheckpoint {
		return 0, text.Mismatch(value, "how often it saves its work, 1s to 7d, or term")
	}
	return job.Checkpoint(every), nil
}

func formatCheckpoint(c job.Checkpoint) string {
	switch c {
	case job.CheckpointTold:
		return "term"
	case 0:
		return "no"
	}
	return text.FormatDuration(c.Every())
}

// maxParkTimeout bounds how long a card can be wanted and not given away.
const maxParkTimeout = time.Hour

func parseParkTimeout(value string) (time.Duration, error) {
	d, err := text.ParseDuration(value)
	if err == nil && (d < time.Second || d > maxParkTimeout) {
		err = text.Mismatch(value, "1s to 1h")
	}
	return d, err
}

// notifyNone is the rule of a job that nobody is told about.
const notifyNone = "none"

// readNotify takes rules, one a line. Those of several keys add up.
func readNotify(a *asking, value string) error {
	lines := strings.Split(strings.TrimSuffix(value, newline), newline)
	if a.notified {
		lines = append(slices.Clone(a.Spec.Notify), lines...)
	}
	var rules []string
	if off := slices.ContainsFunc(lines, func(l string) bool { return strings.EqualFold(l, notifyNone) }); off {
		if len(lines) > 1 {
			return errors.New("expected none alone, or rules such as end:mailto:ann@example.org; found both")
		}
		rules = []string{notifyNone}
	} else {
		parsed, err := notify.ParseRules(lines)
		if err != nil {
			return err
		}
		for _, r := range parsed {
			rules = append(rules, r.String())
		}
	}
	a.Spec.Notify, a.notified = rules, true
	return nil
}

func writeNotify(a *Asked) string { return strings.Join(a.Spec.Notify, newline) }

// NotifyRules are a job's own rules, and whether it has any say: without one the
// rules of its user count.
func NotifyRules(s *job.Spec) (rules []notify.Rule, own bool) {
	if len(s.Notify) == 0 {
		return nil, false
	}
	rules, _ = notify.ParseRules(s.Notify) // read when it was submitted; none has none
	return rules, true
}

// readAfter takes the names of other lines in a jobs file, and ids elsewhere.
func readAfter(a *asking, value string) (err error) {
	parse := parseAfterJobs
	if a.inFile {
		parse = parseAfter
	}
	after, err := parse(value)
	if err == nil {
		a.Spec.After = after
	}
	return err
}

func writeAfter(a *Asked) string {
	var alternatives []string
	for together := range job.Alternatives(a.Spec.After) {
		words := make([]string, len(together))
		for i, dependency := range together {
			words[i] = cmp.Or(dependency.Job, dependency.Name) + ":" + string(dependency.On)
			if dependency.DelayS > 0 {
				words[i] += fmt.Sprintf("+%ds", dependency.DelayS)
			}
		}
		alternatives = append(alternatives, strings.Join(words, ","))
	}
	return strings.Join(alternatives, "|")
}

func readArray(a *asking, value string) error {
	if a.formOnly {
		_, _, err := arraySpans(value)
		return err
	}
	array, err := ParseArray(value, a.maxArray)
	if err == nil {
		a.Array, a.Spec.ArrayLimit = &array, cmp.Or(array.Limit, a.Spec.ArrayLimit)
	}
	return err
}

func readBegin(a *asking, value string) error {
	if a.formOnly {
		_, err := beginForm(value)
		return err
	}
	begin, err := ParseBegin(value, a.now)
	if err != nil {
		return err
	}
	a.NotBefore = time.Time{}
	if begin.After(a.now) {
		a.NotBefore = begin
	}
	return nil
}

// parseExport reads which of the caller's variables a job sees.
func parseExport(value string) (string, error) {
	if word := strings.ToLower(value); word == "all" || word == "none" {
		return word, nil
	}
	names := strings.Split(value, ",")
	if len(names) > maxEnv {
		return "", fmt.Errorf("expected at most %d variables, found %d", maxEnv, len(names))
	}
	for i, name := range names {
		names[i] = strings.TrimSpace(name)
		if !isVariable(names[i]) {
			return "", text.Mismatch(value, "all, none, or names of variables such as HOME,PATH")
		}
	}
	return strings.Join(names, ","), nil
}

// readVariable sets a variable written as NAME=VALUE.
func readVariable(a *asking, written string) error {
	name, value, found := strings.Cut(written, "=")
	if name == "" {
		name = written // the = it begins with is the mistake
	}
	if !found || !isVariable(name) {
		return text.Mismatch(name, "NAME=VALUE with letters, digits and _ in NAME")
	}
	return setEnv(&a.Spec, name, value)
}

// setEnv sets one variable, in its old place if it was set before. It copies
// the list, because jobs share that of the defaults.
func setEnv(spec *job.Spec, name, value string) error {
	at := slices.IndexFunc(spec.Env, func(v job.EnvVar) bool { return v.Key == name })
	if at < 0 && len(spec.Env) == maxEnv {
		return fmt.Errorf("expected at most %d variables, found more", maxEnv)
	}
	spec.Env = slices.Clone(spec.Env)
	if at < 0 {
		spec.Env = append(spec.Env, job.EnvVar{Key: name, Value: value})
	} else {
		spec.Env[at].Value = value
	}
	return nil
}

// isVariable reports whether a shell accepts this as a variable's name.
func isVariable(name string) bool {
	for i := range len(name) {
		if c := name[i]; c != '_' && (c|0x20 < 'a' || c|0x20 > 'z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}
