package cli

import (
	"strconv"
	"strings"
)

// idRuns joins consecutive ids into ranges: "17-20", "25", "30_0-3".
func idRuns(ids []string) []string {
	var runs []string
	for begin := 0; begin < len(ids); {
		end := begin + 1
		array, first, ok := splitID(ids[begin])
		for ok && end < len(ids) {
			nextArray, next, nextOK := splitID(ids[end])
			if !nextOK || nextArray != array || next != first+int64(end-begin) {
				break
			}
			end++
		}
		run := ids[begin]
		if end-begin > 1 {
			_, last, _ := strings.Cut(ids[end-1], "_")
			if array == "" {
				last = ids[end-1]
			}
			run += "-" + last
		}
		runs = append(runs, run)
		begin = end
	}
	return runs
}

// splitID splits "17_3" into its array and its number.
func splitID(id string) (array string, number int64, ok bool) {
	last := id
	if base, task, isTask := strings.Cut(id, "_"); isTask {
		array, last = base, task
	}
	number, err := strconv.ParseInt(last, 10, 64)
	return array, number, err == nil
}

// listedOneByOne is how many jobs are reported individually.
const listedOneByOne = 20
