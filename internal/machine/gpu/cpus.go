package gpu

import (
	"strconv"
	"strings"
)

// FormatCPUs writes an ascending list of CPUs as the kernel does: "0-7,16-23".
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
