package jobfile

import (
	"fmt"
	"strings"

	"berth/internal/job"
	"berth/internal/text"
)

const (
	allowedSlurmTime = "Slurm's minutes, m:s, h:m:s, d-h, d-h:m or d-h:m:s"
	allowedSlurmMem  = "a size in Slurm's MB, or with K, M, G or T"
)

// slurmTime reads a time limit in Slurm's units, where a bare number is
// minutes. It comes back in seconds; 0 is no limit.
func slurmTime(value string) (seconds int, err error) {
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
	// The first number is days' hours after d-, else minutes, unless all
	// three parts are there.
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

// slurmMem reads an amount of memory in Slurm's units; 0 is all there is.
func slurmMem(value string) (mib int64, err error) {
	number, unit, ok := text.CutNumber(value)
	n, whole := text.Digits(strings.TrimRight(value, "kKmMgGtTbB"), 12)
	if !ok || !whole || number != float64(n) {
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

// slurmGPUs reads "[type:]N".
func slurmGPUs(value string) (pairs []Pair, ok bool, err error) {
	kind, count, typed := strings.Cut(value, ":")
	if !typed {
		kind, count = "", value
	}
	if strings.ContainsAny(count, ":,.") || (typed && kind == "") {
		return nil, false, nil
	}
	if _, whole := text.Digits(count, 6); !whole {
		return nil, false, text.Mismatch(value, "Slurm's [type:]number")
	}
	return cards(kind, count), true, nil
}

func cards(kind, count string) []Pair {
	pairs := []Pair{{Key: "gpus", Value: count}}
	if kind != "" {
		pairs = append(pairs, Pair{Key: "type", Value: kind})
	}
	return pairs
}

// slurmGRES reads "gpu[:type][:N]" from a list of resources. What else is in
// the list is the rest; where the GPUs are of two types there are none.
func slurmGRES(value string) (pairs []Pair, rest string) {
	var others []string
	for part := range strings.SplitSeq(value, ",") {
		words := strings.Split(part, ":")
		if words[0] != "gpu" || len(words) > 3 {
			others = append(others, part)
			continue
		}
		if pairs != nil {
			return nil, ""
		}
		kind, count := "", "1"
		switch _, number := text.Digits(words[len(words)-1], 6); {
		case number:
			count = words[len(words)-1]
			kind = strings.Join(words[1:len(words)-1], "")
		case len(words) == 2:
			kind = words[1]
		case len(words) == 3:
			return nil, ""
		}
		pairs = cards(kind, count)
	}
	if len(others) > 0 {
		rest = "--gres=" + strings.Join(others, ",")
	}
	return pairs, rest
}

// slurmOutput turns a file name pattern into berth's. A task's id is its
// array's with its index, so %A alone can be said only of a job that is no
// array.
func slurmOutput(pattern string, isArray bool) (string, bool) {
	if strings.ContainsRune(pattern, '\\') {
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
		case 'j', 'u', 'a', '%':
			b.WriteString("%" + rest[:1])
		case 'x':
			b.WriteString("%n")
		case 'A':
			index, together := strings.CutPrefix(pattern, "_%a")
			if isArray && !together {
				return "", false
			}
			if isArray {
				pattern = index
			}
			b.WriteString("%j")
		default:
			return "", false
		}
	}
}

// signalNumbers are those of Linux.
var signalNumbers = map[string]string{
	"1": "HUP", "2": "INT", "3": "QUIT", "10": "USR1", "12": "USR2", "14": "ALRM", "15": "TERM", "18": "CONT", "23": "URG", "28": "WINCH",
}

// slurmSignal reads "[B:]signal[@seconds]", the signal by name or number.
func slurmSignal(value string) string {
	value = strings.TrimPrefix(value, "B:")
	name, before, timed := strings.Cut(value, "@")
	if known, ok := signalNumbers[name]; ok {
		name = known
	}
	if !timed {
		return name
	}
	return name + "@" + before
}

var slurmConditions = map[string]job.Condition{"afterok": job.AfterOK, "afterany": job.AfterAny, "afternotok": job.AfterFail}

// slurmDependency reads "afterok:12:13,afterany:14". Where a part has no
// meaning here the whole has none: half a dependency would start a job early.
func slurmDependency(value string) (after string, ok bool) {
	var list []string
	for part := range strings.SplitSeq(value, ",") {
		words := strings.Split(part, ":")
		condition, known := slurmConditions[words[0]]
		if !known || len(words) < 2 {
			return "", false
		}
		for _, id := range words[1:] {
			if _, isID := parseJobID(id); !isID {
				return "", false
			}
			list = append(list, fmt.Sprintf("%s:%s", id, condition))
		}
	}
	return strings.Join(list, ","), true
}
