package jobfile

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"berth/internal/job"
	"berth/internal/queue/notify"
	"berth/internal/text"
)

const (
	allowedSlurmTime = "a Slurm time limit (minutes, m:s, h:m:s, d-h, d-h:m or d-h:m:s)"
	allowedSlurmMem  = "a Slurm memory size such as 4096 (MB) or 16G (with K, M, G or T)"
)

// slurmTime reads a time limit; 0 means no limit.
func slurmTime(_ *slurmTranslator, value string) (pairs []Pair, ok bool, err error) {
	seconds, err := slurmSeconds(value)
	if seconds == 0 || err != nil {
		return nil, err == nil, err
	}
	return []Pair{{"timeout", fmt.Sprintf("%ds", seconds)}}, true, nil
}

// slurmSeconds reads a time in Slurm's units, where a bare number is minutes.
func slurmSeconds(value string) (seconds int, err error) {
	if strings.EqualFold(value, "unlimited") || strings.EqualFold(value, "infinite") {
		return 0, nil
	}
	days, clock, hasDays := strings.Cut(value, "-")
	if !hasDays {
		days, clock = "0", value
	}
	parts := strings.Split(clock, ":")
	numbers := make([]int, len(parts))
	count, ok := text.Digits(days, 6)
	for i, part := range parts {
		var isNumber bool
		numbers[i], isNumber = text.Digits(part, 8)
		ok = ok && isNumber
	}
	if !ok || len(parts) > 3 {
		return 0, text.Mismatch(value, allowedSlurmTime)
	}
	// The first number is hours after d- or if there are three parts, else
	// minutes.
	unit := 60
	if hasDays || len(parts) == 3 {
		unit = 3600
	}
	seconds = count * 24 * 3600
	for _, n := range numbers {
		seconds += n * unit
		unit /= 60
	}
	return seconds, nil
}

// slurmMem reads an amount of memory in Slurm's units; 0 means all memory.
func slurmMem(_ *slurmTranslator, value string) (pairs []Pair, ok bool, err error) {
	mib, err := slurmMiB(value)
	return []Pair{{"mem", fmt.Sprint(mib)}}, mib > 0, err
}

func slurmMiB(value string) (mib int64, err error) {
	number, unit, isNumber := text.CutNumber(value)
	n, whole := text.Digits(strings.TrimRight(value, "kKmMgGtTbB"), 12)
	if !isNumber || !whole || number != float64(n) {
		return 0, text.Mismatch(value, allowedSlurmMem)
	}
	mib = int64(n)
	switch strings.TrimSuffix(strings.ToUpper(unit), "B") {
	case "K":
		mib = (mib + 1023) / 1024
	case "", "M":
	case "G":
		mib <<= 10
	case "T":
		mib <<= 20
	default:
		return 0, text.Mismatch(value, allowedSlurmMem)
	}
	return mib, nil
}

func slurmCount(value string) (int64, error) {
	n, whole := text.Digits(value, 6)
	if !whole {
		return 0, text.Mismatch(value, "a whole number")
	}
	return int64(n), nil
}

// tasks is how many processes each srun of the job starts, all on this machine.
func (t *slurmTranslator) tasks() int64 {
	for _, name := range []string{"ntasks", "ntasks-per-node"} {
		if n, whole := text.Digits(t.last[name], 6); whole && n > 0 {
			return int64(n)
		}
	}
	return 1
}

// slurmTasks reads how many processes srun starts. Each has a CPU unless another
// option says how many. The number reaches srun in a variable of the job.
func slurmTasks(t *slurmTranslator, value string) (pairs []Pair, ok bool, err error) {
	n, err := slurmCount(value)
	switch {
	case err != nil || n == 0:
		return nil, false, text.Mismatch(value, "a whole number above 0")
	case n < t.tasks():
		return nil, false, fmt.Errorf("expected at least the %d tasks of the job, found %d: a berth job runs on one machine", t.tasks(), n)
	case t.tasks() == 1:
		return nil, true, nil
	}
	pairs = []Pair{{envPrefix + "SLURM_NTASKS", fmt.Sprint(t.tasks())}}
	if _, given := t.last["cpus-per-task"]; !given {
		pairs = append(pairs, Pair{"cpus", fmt.Sprint(t.tasks())})
	}
	return pairs, true, nil
}

// perTask is an amount for each task.
func (t *slurmTranslator) perTask(pairs []Pair, key, variable string) []Pair {
	for i, pair := range pairs {
		if n, whole := text.Digits(pair.Value, 6); whole && pair.Key == key && t.tasks() > 1 {
			pairs[i].Value = fmt.Sprint(int64(n) * t.tasks())
			return append(pairs, Pair{envPrefix + variable, fmt.Sprint(n)})
		}
	}
	return pairs
}

func slurmCPUs(t *slurmTranslator, value string) (pairs []Pair, ok bool, err error) {
	return t.perTask([]Pair{{"cpus", value}}, "cpus", "SLURM_CPUS_PER_TASK"), true, nil
}

func slurmTaskGPUs(t *slurmTranslator, value string) (pairs []Pair, ok bool, err error) {
	pairs, ok, err = slurmGPUs(t, value)
	return t.perTask(pairs, "gpus", "SLURM_GPUS_PER_TASK"), ok, err
}

var errTwoTypes = errors.New("the GPUs of a berth job are all of one type, or of any")

// slurmGPUs reads "[type:]N".
func slurmGPUs(_ *slurmTranslator, value string) (pairs []Pair, ok bool, err error) {
	kind, count, typed := strings.Cut(value, ":")
	if !typed {
		kind, count = "", value
	}
	if strings.Contains(value, ",") {
		return nil, false, errTwoTypes
	}
	if _, whole := text.Digits(count, 6); !whole || typed && kind == "" {
		return nil, false, text.Mismatch(value, "[type:]number as in Slurm")
	}
	return gpusOf(kind, count), true, nil
}

func gpusOf(kind, count string) []Pair {
	pairs := []Pair{{Key: "gpus", Value: count}}
	if kind != "" {
		pairs = append(pairs, Pair{Key: "type", Value: kind})
	}
	return pairs
}

// slurmGRES reads "gpu[:type][:N]" from a list of resources and ignores the
// other resources. It has no translation for GPUs of two types.
func slurmGRES(t *slurmTranslator, value string) (pairs []Pair, ok bool, err error) {
	var others []string
	for part := range strings.SplitSeq(value, ",") {
		words := strings.Split(part, ":")
		if words[0] != "gpu" || len(words) > 3 {
			others = append(others, part)
			continue
		}
		if pairs != nil {
			return nil, false, errTwoTypes
		}
		kind, count := "", "1"
		switch _, number := text.Digits(words[len(words)-1], 6); {
		case number:
			count = words[len(words)-1]
			kind = strings.Join(words[1:len(words)-1], "")
		case len(words) == 2:
			kind = words[1]
		case len(words) == 3:
			return nil, false, text.Mismatch(part, "gpu[:type][:number] as in Slurm")
		}
		pairs = gpusOf(kind, count)
	}
	if len(others) > 0 {
		t.rest = "--gres=" + strings.Join(others, ",")
	}
	return pairs, pairs != nil, nil
}

// slurmOutput reads a file name pattern.
func slurmOutput(t *slurmTranslator, value string) (pairs []Pair, ok bool, err error) {
	pattern, ok := slurmPattern(value)
	if t.appends() {
		pattern += "%+"
	}
	return []Pair{{"output", pattern}}, ok, nil
}

// slurmOpenMode is read with the files. Truncating means nothing: each attempt has
// a file of its own.
func slurmOpenMode(t *slurmTranslator, value string) (pairs []Pair, ok bool, err error) {
	if !t.appends() && !strings.EqualFold(value, "truncate") {
		return nil, false, text.Mismatch(value, "append or truncate")
	}
	return nil, true, nil
}

func (t *slurmTranslator) appends() bool { return strings.EqualFold(t.last["open-mode"], "append") }

// slurmError redirects errors before the command starts, unless they go where the
// output goes: berth's own log has both.
func slurmError(t *slurmTranslator, value string) (pairs []Pair, ok bool, err error) {
	if output, given := t.last["output"]; given && output == value {
		return nil, true, nil
	}
	pattern, ok := slurmPattern(value)
	if !ok {
		return nil, false, nil
	}
	redirect := redirects
	if t.appends() {
		redirect += ">"
	}
	return []Pair{{"setup", redirect + shellPattern(pattern)}}, true, nil
}

// A set-up whose first line redirects errors, and what ends that line if more follows.
const (
	redirects  = "exec 2>"
	orElseFail = " || exit"
)

func cutRedirect(setup string) (redirect, command string) {
	if !strings.HasPrefix(setup, redirects) {
		return "", setup
	}
	redirect, command, _ = strings.Cut(setup, "\n")
	return strings.TrimSuffix(redirect, orElseFail), command
}

// JoinSetup is a set-up that replaces an earlier one, but not its redirection of
// errors. A later redirection alone replaces only that.
func JoinSetup(earlier, later string) string {
	redirect, before := cutRedirect(earlier)
	own, command := cutRedirect(later)
	if own != "" && command == "" {
		command = before
	}
	switch redirect = cmp.Or(own, redirect); {
	case redirect == "":
		return command
	case command == "":
		return redirect
	}
	return redirect + orElseFail + "\n" + command
}

// JoinSetups joins each set-up with the one before it.
func JoinSetups(pairs []Pair) []Pair {
	before := ""
	for i, pair := range pairs {
		if pair.Key == "setup" {
			before = JoinSetup(before, pair.Value)
			pairs[i].Value = before
		}
	}
	return pairs
}

// ErrorFile is the file that a job's set-up redirects its errors to; empty: its log
// has them.
func ErrorFile(setup string, v *job.View, host string) string {
	redirect, _ := cutRedirect(setup)
	words, err := text.ShellWords(strings.TrimLeft(strings.TrimPrefix(redirect, redirects), ">"), true)
	if err != nil || len(words) != 1 {
		return ""
	}
	array, index, _ := strings.Cut(v.ID, "_")
	return strings.NewReplacer("$BERTH_JOB_ID", v.ID, "$BERTH_JOB_NAME", v.Name, "$SLURM_JOB_USER", v.User, "$SLURMD_NODENAME", host,
		"$BERTH_ARRAY_INDEX", index, "${BERTH_JOB_ID%_*}", array).Replace(words[0])
}

// shellPattern is a pattern as a word of the shell of a running job.
func shellPattern(pattern string) string {
	var b strings.Builder
	for {
		plain, rest, found := strings.Cut(pattern, "%")
		if plain != "" {
			b.WriteString(job.Quote(plain))
		}
		if !found {
			return b.String()
		}
		b.WriteString(map[byte]string{
			'j': `"$BERTH_JOB_ID"`, 'n': `"$BERTH_JOB_NAME"`, 'u': `"$SLURM_JOB_USER"`, 'N': `"$SLURMD_NODENAME"`,
			'a': `"$BERTH_ARRAY_INDEX"`, 'A': `"${BERTH_JOB_ID%_*}"`, '%': "%",
		}[rest[0]])
		pattern = rest[1:]
	}
}

// slurmEvents are the events of --mail-type that berth has.
var slurmEvents = map[string]string{"BEGIN": "start", "END": "end", "FAIL": "fail", "TIME_LIMIT": "fail", "ALL": "start,end,fail"}

// slurmMailType needs the address of --mail-user: berth knows no mailbox of a user.
func slurmMailType(t *slurmTranslator, value string) (pairs []Pair, ok bool, err error) {
	if strings.EqualFold(value, "NONE") {
		return []Pair{{"notify", notifyNone}}, true, nil
	}
	var events []string
	for word := range strings.SplitSeq(strings.ToUpper(value), ",") {
		event, known := slurmEvents[word]
		if !known {
			return nil, false, nil
		}
		events = append(events, event)
	}
	rule, err := notify.ParseRules([]string{strings.Join(events, ",") + ":mailto:" + t.last["mail-user"]})
	if err != nil {
		return nil, false, nil
	}
	return []Pair{{"notify", rule[0].String()}}, true, nil
}

// slurmMailUser means nothing without --mail-type, which reads it.
func slurmMailUser(t *slurmTranslator, _ string) (pairs []Pair, ok bool, err error) {
	_, ok, err = slurmMailType(t, t.last["mail-type"])
	return nil, ok, err
}

// slurmNoRequeue is berth's default, but not Slurm's.
func slurmNoRequeue(*slurmTranslator, string) (pairs []Pair, ok bool, err error) {
	return []Pair{{"requeue", "no"}, {"slurm", "--no-requeue"}}, true, nil
}

// slurmNodes accepts one node, or a range that starts with one.
func slurmNodes(t *slurmTranslator, value string) (pairs []Pair, ok bool, err error) {
	if least, _, ranged := strings.Cut(value, "-"); ranged {
		value = least
	}
	return one(t, value)
}

func slurmBegin(_ *slurmTranslator, value string) (pairs []Pair, ok bool, err error) {
	_, err = beginForm(value)
	return []Pair{{"begin", value}}, true, err
}

// slurmPattern translates a file name pattern.
func slurmPattern(pattern string) (string, bool) {
	if strings.ContainsAny(pattern, "\\\n") {
		return "", false
	}
	var b strings.Builder
	for {
		plain, rest, found := strings.Cut(pattern, "%")
		b.WriteString(plain)
		if !found {
			return b.String(), true
		}
		if rest == "" {
			return "", false
		}
		pattern = rest[1:]
		switch rest[0] {
		case 'j', 'u', 'a', 'A', 'N', '%':
			b.WriteString("%" + rest[:1])
		case 't', 'n': // the batch script is the first task on the first node
			b.WriteString("0")
		case 'x':
			b.WriteString("%n")
		default:
			return "", false
		}
	}
}

// signalNumbers are those of Linux.
var signalNumbers = map[string]string{
	"1": "HUP", "2": "INT", "3": "QUIT", "10": "USR1", "12": "USR2", "14": "ALRM", "15": "TERM", "18": "CONT", "23": "URG", "28": "WINCH",
}

// slurmSignal reads "[B:]signal[@seconds]", the signal by name or number. With
// --requeue it means a job that saves its work then, and may be run again.
func slurmSignal(t *slurmTranslator, value string) (pairs []Pair, ok bool, err error) {
	name, before, timed := strings.Cut(strings.TrimPrefix(value, "B:"), "@")
	if known, ok := signalNumbers[name]; ok {
		name = known
	}
	if timed {
		name += "@" + before
	}
	_, _, err = parseSignal(name)
	pairs = []Pair{{"signal", name}}
	_, never := t.last["no-requeue"]
	if _, again := t.last["requeue"]; again && !never {
		pairs = append(pairs, Pair{"preemptible", "requeue"}, Pair{"checkpoint", "term"})
	}
	return pairs, true, err
}

const allowedDependency = "singleton, or after, afterok, afterany, afternotok or aftercorr with the ids of berth's jobs, such as afterok:12:13"

var slurmConditions = map[string]job.Condition{"after": job.AfterStart, "afterok": job.AfterOK, "afterany": job.AfterAny, "afternotok": job.AfterFail, "aftercorr": job.AfterOK}

// slurmDependency reads "afterok:12:13,after:14+5", or with ? if one is enough.
func slurmDependency(_ *slurmTranslator, value string) (pairs []Pair, ok bool, err error) {
	var list []string
	between := ","
	if strings.Contains(value, "?") {
		if between = "?"; strings.Contains(value, ",") {
			return nil, false, text.Mismatch(value, "commas or question marks between dependencies, not both")
		}
	}
	for part := range strings.SplitSeq(value, between) {
		words := strings.Split(part, ":")
		condition, known := slurmConditions[words[0]]
		if part == "singleton" {
			list = append(list, Namesakes+":any")
			continue
		}
		if !known || len(words) < 2 {
			return nil, false, text.Mismatch(part, allowedDependency)
		}
		for _, word := range words[1:] {
			id, minutes, delayed := strings.Cut(word, "+")
			n, whole := text.Digits(minutes, 6)
			if _, isID := parseJobID(id); !isID || delayed && (!whole || words[0] != "after") {
				return nil, false, text.Mismatch(part, allowedDependency)
			}
			if words[0] == "aftercorr" && !strings.Contains(id, "_") {
				id += SameTask
			}
			id += ":" + string(condition)
			if n > 0 {
				id += fmt.Sprintf("+%dm", n)
			}
			list = append(list, id)
		}
	}
	if between == "?" {
		between = "|"
	}
	return []Pair{{"after", strings.Join(list, between)}}, true, nil
}

// slurmExport reads which variables a job gets: names to keep, and NAME=VALUE
// to set.
func slurmExport(_ *slurmTranslator, value string) (pairs []Pair, ok bool, err error) {
	var names []string
	export := ""
	for part := range strings.SplitSeq(value, ",") {
		name, set, isSet := strings.Cut(strings.TrimSpace(part), "=")
		switch {
		case isSet:
			pairs = append(pairs, Pair{Key: envPrefix + name, Value: set})
		case strings.EqualFold(name, "all"), strings.EqualFold(name, "none"):
			export = strings.ToLower(name)
		default:
			names = append(names, name)
		}
		if !isVariable(name) || name == "NIL" {
			return nil, false, nil
		}
	}
	switch {
	case export == "" && len(names) == 0:
		export = "none"
	case export == "":
		export = strings.Join(names, ",")
	}
	return append(pairs, Pair{Key: "export", Value: export}), true, nil
}
