package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/cli/session"
	"berth/internal/text"
	"berth/internal/text/problem"
)

func newBackup() *cobra.Command {
	force := false
	cmd := &cobra.Command{
		Use:   "backup FILE|-",
		Short: "Back up the daemon's state to a file",
		Long: `Copy the daemon's state, with all jobs and their history, into one file. Jobs
keep running. Logs are not included. Only you can read the file, and it appears
only when it is complete. berth restore restores it.`,
		Example: `  berth backup berth-2026-03-01.backup
  berth backup - | ssh elsewhere 'cat > berth.backup'

Exit status: 0 written; 1 refused, not written, or no daemon; 2 bad usage; 130
interrupted.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && args[0] != "" {
				return nil
			}
			return problem.Newf(problem.Invalid, "berth backup berth.backup, or - for standard output", "expected one file, found %d", len(args))
		},
		RunE: session.Verb(func(ctx context.Context, s *session.Session, args []string) error {
			return backup(ctx, s, args[0], force)
		}),
	}
	session.DaemonFlags(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "replace the file if it exists")
	return cmd
}

func backup(ctx context.Context, s *session.Session, path string, force bool) error {
	if path == "-" {
		if s.Terminal {
			return problem.Newf(problem.Invalid, "berth backup FILE, or redirect standard output", "a backup is binary and cannot be shown on a terminal")
		}
		return s.Client.Backup(ctx, s.Out)
	}
	if !force && session.Exists(path) {
		return taken(path)
	}
	size, err := backupFile(ctx, s.Client, path, force)
	if errors.Is(err, fs.ErrExist) {
		return taken(path)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(s.Out, text.Line(fmt.Sprintf("wrote %s (%.1f MiB)", path, float64(size)/(1<<20))))
	return err
}

func taken(path string) error {
	return problem.Newf(problem.Unable, "choose another file, or replace it with --force", "%s already exists", path)
}

// backupFile writes a temporary file and renames it when all of it is on disk,
// so that a backup is complete or absent.
func backupFile(ctx context.Context, client *api.Client, path string, force bool) (size int64, err error) {
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return 0, fmt.Errorf("write backup: %w", err)
	}
	defer os.Remove(temp.Name())
	defer temp.Close()
	if err := client.Backup(ctx, temp); err != nil {
		return 0, err
	}
	info, err := temp.Stat()
	if err == nil {
		err = temp.Sync()
	}
	if err != nil {
		return 0, fmt.Errorf("write backup: %w", err)
	}
	// A link fails if the file exists; a rename would replace it.
	place := os.Link
	if force {
		place = os.Rename
	}
	if err := place(temp.Name(), path); err != nil {
		return 0, fmt.Errorf("write backup: %w", err)
	}
	return info.Size(), syncDir(filepath.Dir(path))
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("write backup: %w", err)
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil {
		return fmt.Errorf("write backup: %w", err)
	}
	return nil
}
