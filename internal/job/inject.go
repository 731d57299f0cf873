package job

import (
	"slices"
	"strconv"
	"strings"
)

// How a job is told its cards in the flag that Spec.Inject names.
const (
	InjectPhysical = "physical" // their numbers on this machine
	InjectLocal    = "local"    // numbered from 0, as the job sees them
)

// CutInject splits FLAG=MODE. The flag may contain a = itself.
func CutInject(inject string) (flag, mode string) {
	at := strings.LastIndexByte(inject, '=')
	if at < 0 {
		return inject, ""
	}
	return inject[:at], inject[at+1:]
}

// Injected is the spec with the cards of one attempt added to its command, in
// the flag that Inject names. A job without a card is unchanged.
func (s Spec) Injected(gpus []int) Spec {
	if s.Inject == "" || len(gpus) == 0 {
		return s
	}
	flag, mode := CutInject(s.Inject)
	ids := make([]string, len(gpus))
	for i, id := range slices.Sorted(slices.Values(gpus)) {
		if mode == InjectLocal {
			id = i
		}
		ids[i] = strconv.Itoa(id)
	}
	value := strings.Join(ids, ",")
	if len(s.Argv) == 0 {
		s.Shell = strings.TrimRight(s.Shell, " \t\r\n") + " " + flag + " " + value
		return s
	}
	s.Argv = tellWords(s.Argv, flag, value)
	return s
}

// tellWords sets the flag's value wherever the flag is among the arguments, or
// appends it.
func tellWords(argv []string, flag, value string) []string {
	told := make([]string, 0, len(argv)+2)
	found := false
	for i := 0; i < len(argv); i++ {
		word := argv[i]
		switch {
		case i > 0 && strings.HasPrefix(word, flag+"="):
			told, found = append(told, flag+"="+value), true
		case i > 0 && word == flag:
			told, found = append(told, flag, value), true
			if i+1 < len(argv) && isValue(argv[i+1]) {
				i++
			}
		default:
			told = append(told, word)
		}
	}
	if !found {
		told = append(told, flag, value)
	}
	return told
}

// isValue reports whether a word is the flag's value and not another flag. A
// negative number is a value: many programs use -1 for no card.
func isValue(word string) bool {
	rest, dashed := strings.CutPrefix(word, "-")
	return !dashed || rest != "" && rest[0] >= '0' && rest[0] <= '9'
}
