package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"

	"berth/internal/job"
)

// Bounds on the cost of an open store.
const (
	busyMillis      = 5000     // how long to wait for a person with a SQLite shell
	writerCacheKiB  = 4 << 10  // pages the one writer keeps
	bulkCacheKiB    = 32 << 10 // pages it keeps during a commit of many rows
	largeCommit     = 5000     // the number of rows from which a commit counts as large
	readerCacheKiB  = 512      // pages each reader keeps
	maxReaders      = 4        // long reads at a time; more wait
	maxLookups      = 2        // reads of one row at a time
	walLimitBytes   = 16 << 20 // the largest log that a commit may leave behind
	alwaysCheckSize = 64 << 20 // a file up to this size is checked at every open
)

// Store is an open store. Its methods may be called from several goroutines.
type Store struct {
	dir     string
	path    string
	lock    *os.File
	ballast *ballast
	steps   steps       // of long reads; zero: usualSteps
	file    os.FileInfo // the file at path, when it was opened
	writer  *sql.DB
	reader  *sql.DB   // for reads that may take long
	lookup  *sql.DB   // for reads of one row, which never wait for those
	conn    *sql.Conn // the writer's only connection

	mu           sync.Mutex // held by a commit
	statements   statements
	written      map[int64]writtenText    // the long texts of unfinished jobs that are known to be on disk, by number
	sweeping     map[string]bool          // the blobs that were put since the present sweep began; nil: there is none
	ahead        map[*job.Job]writtenText // the long texts of jobs that are about to be committed
	pastText     atomic.Int64             // bytes of text in jobs that ended
	lastSeq      int64                    // the highest number of any job, ever
	lastEvent    int64                    // the highest number of any event, ever
	sinceFlushed int                      // rows written since the log was last folded into the file
	broken       error                    // why no more commits are accepted
	unwritten    bool                     // the disk failed, and no commit has succeeded since
	closed       bool
}

var errClosed = errors.New("store is closed")

// Path is the file of the store in a directory.
func Path(dir string) string { return filepath.Join(dir, "berth.db") }

// Open opens the store in a directory and creates both if they are missing. It
// returns a *LockedError if another process has it open, a *NewerSchemaError for
// a store of a later berth, and errBroken for a damaged one.
func Open(dir string) (*Store, error) {
	s, err := open(dir, migrations())
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", dir, err)
	}
	return s, nil
}

func open(dir string, steps []string) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	s := &Store{dir: dir, path: Path(dir), written: map[int64]writtenText{}, ahead: map[*job.Job]writtenText{}}
	if s.lock, err = takeLock(dir); err != nil {
		return nil, err
	}
	s.ballast = newBallast(dir)
	if err := s.start(steps); err != nil {
		err = s.classify(err)
		err = errors.Join(err, s.release())
		if errors.Is(err, ErrFull) && s.ballast.free() {
			return open(dir, steps)
		}
		return nil, err
	}
	_ = s.ballast.reserve() // on a full disk, ordinary commits are refused
	return s, nil
}

// start opens the file; the lock is already held.
func (s *Store) start(steps []string) error {
	ctx := context.Background()
	check := s.needsCheck()
	var err error
	if s.writer, err = sql.Open("sqlite", s.address(writerCacheKiB, "synchronous(FULL)", "foreign_keys(1)",
		"wal_autocheckpoint(0)", fmt.Sprintf("journal_size_limit(%d)", walLimitBytes))); err != nil {
		return err
	}
	s.writer.SetMaxOpenConns(1)
	if s.conn, err = s.writer.Conn(ctx); err != nil {
		return err
	}
	var mode string
	if err := s.conn.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" {
		return fmt.Errorf("SQLite uses journal mode %s here, but berth needs WAL", mode)
	}
	if check {
		if err := quickCheck(ctx, s.conn); err != nil {
			return err
		}
	}
	if err := migrate(ctx, s.conn, s.path, steps); err != nil {
		return err
	}
	if err := s.readCounters(ctx, s.conn); err != nil {
		return err
	}
	if err := s.startReading(); err != nil {
		return err
	}
	if s.statements, err = prepare(ctx, s.conn); err != nil {
		return err
	}
	if s.file, err = os.Stat(s.path); err != nil {
		return err
	}
	return syncPath(s.dir) // the directory entry must survive a power cut too
}

// startReading opens the connections that only read.
func (s *Store) startReading() (err error) {
	if s.reader, err = sql.Open("sqlite", s.address(readerCacheKiB, "query_only(1)")); err != nil {
		return err
	}
	s.reader.SetMaxOpenConns(maxReaders)
	s.reader.SetMaxIdleConns(1)
	if s.lookup, err = sql.Open("sqlite", s.address(readerCacheKiB, "query_only(1)")); err != nil {
		return err
	}
	s.lookup.SetMaxOpenConns(maxLookups)
	s.lookup.SetMaxIdleConns(1)
	return nil
}

// needsCheck decides before anything is opened whether to check the file. A
// large file is checked only if it was not closed properly, which shows in its
// log: SQLite removes it on close.
func (s *Store) needsCheck() bool {
	file, err := os.Stat(s.path)
	if err != nil || file.Size() == 0 {
		return false
	}
	log, err := os.Stat(s.path + "-wal")
	return file.Size() <= alwaysCheckSize || (err == nil && log.Size() > 0)
}

func quickCheck(ctx context.Context, conn *sql.Conn) error {
	var verdict string
	if err := conn.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&verdict); err != nil {
		return err
	}
	if verdict != "ok" {
		return fmt.Errorf("%w: %s", errBroken, verdict)
	}
	return nil
}

// address is the file and the settings of a connection. The path is escaped: a
// directory may have any name.
func (s *Store) address(cacheKiB int, pragmas ...string) string {
	pragmas = append(pragmas, fmt.Sprintf("cache_size(-%d)", cacheKiB))
	query := url.Values{"_pragma": pragmas, "_txlock": {"immediate"}, "_busy_timeout": {fmt.Sprint(busyMillis)}}
	return "file:" + (&url.URL{Path: s.path}).EscapedPath() + "?" + query.Encode()
}

// Close closes the store, so that another process can open it.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.release()
}

// release closes what start opened. A writer whose disk failed stays open:
// closing would fold its log into the file and delete the log, and a sync that
// failed once may wrongly succeed the second time.
func (s *Store) release() error {
	if s.closed {
		return nil
	}
	s.closed = true
	var errs []error
	if s.reader != nil {
		errs = append(errs, s.reader.Close())
	}
	if s.lookup != nil {
		errs = append(errs, s.lookup.Close())
	}
	if s.broken == nil && !s.unwritten {
		if s.conn != nil {
			errs = append(errs, s.statements.close())
		}
		if s.conn != nil {
			errs = append(errs, s.conn.Close())
		}
		if s.writer != nil {
			errs = append(errs, s.writer.Close())
		}
	}
	if s.broken == nil {
		s.broken = errClosed
	}
	if s.lock != nil {
		errs = append(errs, releaseLock(s.lock))
	}
	return errors.Join(errs...)
}

// makeDir creates the store's directory, closed to other users because commands
// and variables may contain secrets.
func makeDir(dir string) error {
	if err := MakeDir(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	return MakeDir(dir, 0o700)
}

// MakeDir is os.MkdirAll, and makes the new names durable: after a power cut,
// whatever was synced in a directory is lost if the directory's name was not.
func MakeDir(path string, mode os.FileMode) error {
	if isDir(path) {
		return nil
	}
	parent := filepath.Dir(path)
	if parent != path {
		if err := MakeDir(parent, mode); err != nil {
			return err
		}
	}
	err := os.Mkdir(path, mode)
	switch {
	case isDir(path):
	case errors.Is(err, os.ErrExist):
		return &os.PathError{Op: "mkdir", Path: path, Err: syscall.ENOTDIR}
	case err != nil:
		return err
	}
	if err := syncPath(parent); !errors.Is(err, os.ErrPermission) {
		return err // a parent that is writable but not readable cannot be synced
	}
	return nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
