// Command berth-front is installed as berth, beside cmd/berth as berth-main.
package main

import (
	"os"

	"berth/internal/cli/front"
)

func main() { os.Exit(front.Main(os.Args)) }
