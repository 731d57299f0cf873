// Command pictures draws the pictures of docs/explanation, one SVG per page. It
// may not read anything: a picture is code, so that it can be reviewed and
// changed like code. `make pictures` writes them, and a test fails if a
// committed picture is not what this program draws.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	dir := flag.String("dir", "docs/explanation", "where to write the pictures")
	flag.Parse()
	for _, p := range pictures() {
		if err := os.WriteFile(filepath.Join(*dir, p.name+".svg"), []byte(p.svg()), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "pictures:", err)
			os.Exit(1)
		}
	}
}
