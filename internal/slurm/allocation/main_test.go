package allocation_test

import (
	"os"
	"testing"

	"berth/internal/tests/testkit"
)

var programs string

func TestMain(m *testing.M) {
	os.Exit(testkit.RunWith(m, func(dir string) { programs = dir }, "cmd/berth", "cmd/berth-keep"))
}
