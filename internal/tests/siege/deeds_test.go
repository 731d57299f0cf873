package siege

import (
	"fmt"
	"os"
)

// deedWord makes this program an attacker's tool instead of a test: what takes
// a process of the attacker's own and more than a shell.
const deedWord = "deed"

var deeds = map[string]func(args []string) error{}

func deed(name string, args []string) int {
	do, known := deeds[name]
	if !known {
		fmt.Fprintln(os.Stderr, "no deed", name)
		return 2
	}
	if err := do(args); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}
