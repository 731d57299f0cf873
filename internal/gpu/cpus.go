package gpu

import (
	"strconv"
	"strings"
)

// maxCPUs is more than any machine has; a list beyond it is no list.
const maxCPUs = 1 << 14

// ParseCPUs reads a list of CPUs as the kernel writes it: "0-7,16-23".
func ParseCPUs(list string) (cpus []int, ok bool) {
	if strings.TrimSpace(list) == "" {
		return nil, true
	}
	for word := range strings.SplitSeq(strings.TrimSpace(list), ",") {
		first, last, isRange := strings.Cut(word, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err != nil || err2 != nil || from < 0 || to < from || to >= maxCPUs || len(cpus)+to-from >= maxCPUs {
			return nil, false
		}
		for cpu := from; cpu <= to; cpu++ {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, true
}

// FormatCPUs writes an ascending list the same way.
func FormatCPUs(cpus []int) string {
	var list strings.Builder
	for i := 0; i < len(cpus); {
		last := i
		for last+1 < len(cpus) && cpus[last+1] == cpus[last]+1 {
			last++
		}
		if list.Len() > 0 {
			list.WriteByte(',')
		}
		list.WriteString(strconv.Itoa(cpus[i]))
		if last > i {
			list.WriteString("-" + strconv.Itoa(cpus[last]))
		}
		i = last + 1
	}
	return list.String()
}
