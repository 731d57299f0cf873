package cli

import (
	"github.com/spf13/cobra"

	"berth/internal/problem"
)

// writeMan writes the man pages of the verbs and of the topics.
func writeMan(_ *cobra.Command, _ string) error {
	return problem.Newf(problem.Unable, "", "not yet")
}
