package text

// Paint is a colour of the terminal.
type Paint string

const (
	Plain  Paint = ""
	Bold   Paint = "1"
	Dim    Paint = "2"
	Red    Paint = "31"
	Green  Paint = "32"
	Yellow Paint = "33"
	Blue   Paint = "34"
)

// On colours a text.
func (p Paint) On(s string) string {
	if p == Plain || s == "" {
		return s
	}
	return "\x1b[" + string(p) + "m" + s + "\x1b[0m"
}
