package keep

import "strings"

// Mount is one line of /proc/self/mountinfo.
type Mount struct {
	Root    string // the directory of the file system that is mounted
	Point   string // where it is mounted
	Type    string
	Options []string // of the file system, not of the mount
}

// ParseMounts reads the text of /proc/self/mountinfo. It skips a line it does
// not understand: one odd mount must not hide the others.
func ParseMounts(text string) []Mount {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var mounts []Mount
	for line := range strings.Lines(text) {
		before, after, _ := strings.Cut(line, " - ")
		place, source := strings.Fields(before), strings.Fields(after)
		if len(place) < 5 || len(source) < 2 {
			continue
		}
		mounts = append(mounts, Mount{
			Root: unescape.Replace(place[3]), Point: unescape.Replace(place[4]),
			Type: source[0], Options: strings.Split(source[len(source)-1], ","), // the device between them may be empty
		})
	}
	return mounts
}
