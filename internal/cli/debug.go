package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/cli/session"
	"berth/internal/text"
	"berth/internal/text/problem"
)

func newDebug() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "debug",
		Short: "Record what the daemon bases its decisions on",
		Long: `Record what the daemon bases its decisions on, to study them later or on another
machine. berth simulate continues from such a snapshot.`,
		Example: `  berth debug snapshot now.json
  berth simulate now.json --policy default,fifo

Exit status: 0 done; 1 refused, not written, or no daemon; 2 bad usage; 130
interrupted.`,
	}
	withVerbs(cmd, newDebugSnapshot())
	return cmd
}

func newDebugSnapshot() *cobra.Command {
	output := ""
	cmd := &cobra.Command{
		Use:   "snapshot [FILE|-]",
		Short: "Write a snapshot of the daemon's state",
		Long: `Write a snapshot of the daemon's state as JSON: its rules, the GPUs, the jobs on
them with their expected ends, the queue in order, and each user's usage. It has
ids, user names and amounts, but no commands, job names or paths. berth simulate
continues from it: running jobs end when expected, and the queue drains.

Without FILE the snapshot goes to standard output. An existing file is replaced,
and only when the new one is complete.`,
		Example: `  berth debug snapshot now.json
  berth simulate now.json --policy default,fifo,shortest
  berth debug snapshot | berth simulate -

Exit status: 0 written; 1 not written, or no daemon; 2 bad usage; 130
interrupted.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := snapshotPath(args, output)
			if err != nil {
				return err
			}
			return session.Verb(func(ctx context.Context, s *session.Session, _ []string) error { return writeSnapshot(ctx, s, path) })(cmd, args)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "write to this `file`, - for standard output")
	return cmd
}

func snapshotPath(args []string, output string) (string, error) {
	switch {
	case len(args) > 1:
		return "", problem.Newf(problem.Invalid, "berth debug snapshot now.json", "expected one file, found %d", len(args))
	case len(args) == 1 && output != "" && output != args[0]:
		return "", problem.Newf(problem.Invalid, "berth debug snapshot "+args[0], "expected one file, found %s and %s", args[0], output)
	case len(args) == 1:
		output = args[0]
	}
	if output == "" {
		return "-", nil
	}
	return output, nil
}

func writeSnapshot(ctx context.Context, s *session.Session, path string) error {
	data, err := api.Call(ctx, s.Client, api.GetSnapshot, api.None{})
	if err != nil {
		return err
	}
	var written bytes.Buffer
	if err := json.Indent(&written, data, "", " "); err != nil {
		return fmt.Errorf("read the daemon's snapshot: %w", err)
	}
	written.WriteByte('\n')
	if path == "-" {
		_, err := s.Out.Write(written.Bytes())
		return err
	}
	// It contains the usage of other users.
	if err := replaceFile(path, written.Bytes(), 0o600); err != nil {
		return problem.Newf(problem.Unable, "", "write %s: %w", path, err)
	}
	_, err = fmt.Fprintln(s.Out, text.Line(fmt.Sprintf("wrote %s (%.1f KiB); berth simulate %s continues from it", path, float64(written.Len())/1024, path)))
	return err
}

// replaceFile replaces a file when the new one is complete. A pipe, a link or a
// device is written to directly.
func replaceFile(path string, data []byte, mode os.FileMode) error {
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return bare(os.WriteFile(path, data, mode))
	}
	name := filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s.%d", filepath.Base(path), os.Getpid()))
	temp, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return bare(err)
	}
	defer os.Remove(name)
	defer temp.Close()
	if _, err := temp.Write(data); err != nil {
		return bare(err)
	}
	if err := temp.Close(); err != nil {
		return bare(err)
	}
	return bare(os.Rename(name, path))
}

// bare removes the name of the temporary file from an error.
func bare(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
}
