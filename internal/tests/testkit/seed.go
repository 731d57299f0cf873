package testkit

import (
	"flag"

	_ "pgregory.net/rapid" // its flags
)

// init gives property tests the same cases in every run, so that none fails by
// chance: -rapid.seed=0 draws others.
func init() {
	if err := flag.Set("rapid.seed", "1"); err != nil {
		panic(err)
	}
}
