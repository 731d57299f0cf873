package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"berth/internal/cli/session"
)

// versionJSON is what `berth version --json` prints.
type versionJSON struct {
	Version   string `json:"version"`
	Installed string `json:"installed"`
	Program   string `json:"program"`
}

func newVersion() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of berth, and how it was installed",
		Long: `Print the version of this program, how it was installed, and where it is.
berth --version prints the first line only.`,
		Example: `  berth version
  berth --version

Exit status: 0 printed; 2 bad usage.`,
		Args: noWords,
		RunE: func(cmd *cobra.Command, _ []string) error {
			program := thisProgram()
			told := versionJSON{session.Version, installed(session.Kind, program, exists), program}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), told)
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "berth %s\n%s: %s\n", told.Version, told.Installed, told.Program)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	return cmd
}

// thisProgram is what users call: berth-main is the larger part of it.
func thisProgram() string {
	program, _ := os.Executable() // unknown: ""
	return strings.TrimSuffix(program, "-main")
}

// installed says how this program came to this machine. What was published knows
// its kind from its build; deb and rpm have the same programs, and only the
// package manager's files tell them apart.
func installed(kind, program string, exists func(string) bool) string {
	switch {
	case kind == "package" && exists("/var/lib/dpkg/info/berth.list"):
		return "deb package"
	case kind == "package":
		return "rpm package"
	case kind != "":
		return kind
	case strings.Contains(program, "/go-build"):
		return "go run"
	case exists(filepath.Join(filepath.Dir(filepath.Dir(program)), "go.mod")):
		return "checkout"
	}
	return "built from source"
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
