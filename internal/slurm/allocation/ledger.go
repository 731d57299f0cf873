package allocation

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// entry is one line of the ledger. Each has one of these, and is on disk before it
// is acted on.
type entry struct {
	Run    string   `json:"run,omitempty"`    // this run's name in Slurm
	Jobs   []string `json:"jobs,omitempty"`   // keys of new lines; their ids follow from their order
	Ask    int      `json:"ask,omitempty"`    // an allocation is about to be asked for
	Got    int      `json:"got,omitempty"`    // Slurm accepted it
	Slurm  string   `json:"slurm,omitempty"`  // its id there
	Deal   int      `json:"deal,omitempty"`   // an allocation gets jobs
	IDs    []int    `json:"ids,omitempty"`    // these
	Close  int      `json:"close,omitempty"`  // an allocation has ended for certain, or can never begin
	Forget []int    `json:"forget,omitempty"` // jobs that failed are to run again
}

// ledger is an append-only file.
type ledger struct{ file *os.File }

// openLedger reads what is there and drops an incomplete last line: it was not
// acted on.
func openLedger(path string) (*ledger, []entry, error) {
	raw, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	whole := raw[:bytes.LastIndexByte(raw, '\n')+1]
	var entries []entry
	for line := range bytes.Lines(whole) {
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, nil, fmt.Errorf("%s: line %d: %w", path, len(entries)+1, err)
		}
		entries = append(entries, e)
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, err
	}
	if err = file.Truncate(int64(len(whole))); err == nil {
		_, err = file.Seek(int64(len(whole)), 0)
	}
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return &ledger{file}, entries, nil
}

// write adds an entry; it is on disk when write returns.
func (l *ledger) write(e entry) error {
	raw, err := json.Marshal(&e)
	if err != nil {
		return err
	}
	if _, err = l.file.Write(append(raw, '\n')); err == nil {
		err = l.file.Sync()
	}
	if err != nil {
		return fmt.Errorf("write the ledger: %w", err)
	}
	return nil
}
