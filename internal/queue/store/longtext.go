package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"berth/internal/job"
)

// maxInline is the longest text that is written with the rest of its job, at
// every change of it. Longer text is a blob of its own, which is written once.
const maxInline = 8 << 10

// longText is the part of a spec that may be long. SQL looks at none of it.
type longText struct {
	Shell  string       `json:"shell,omitempty"`
	Argv   []string     `json:"argv,omitempty"`
	Env    []job.EnvVar `json:"env,omitempty"`
	Setup  string       `json:"setup,omitempty"`
	Venv   string       `json:"venv,omitempty"`
	Conda  string       `json:"conda,omitempty"`
	Output string       `json:"output,omitempty"`
	Export string       `json:"export,omitempty"`
	Slurm  string       `json:"slurm,omitempty"`
	Bytes  bool         `json:"bytes,omitempty"` // one character per byte; see bytes.go
}

func longTextOf(s *job.Spec) longText {
	return longText{
		Shell: s.Shell, Argv: s.Argv, Env: s.Env, Setup: s.Setup, Venv: s.Venv, Conda: s.Conda,
		Output: s.Output, Export: s.Export, Slurm: s.Slurm,
	}
}

func (l *longText) into(s *job.Spec) {
	s.Shell, s.Argv, s.Env, s.Setup, s.Venv, s.Conda = l.Shell, l.Argv, l.Env, l.Setup, l.Venv, l.Conda
	s.Output, s.Export, s.Slurm = l.Output, l.Export, l.Slurm
}

// longBytes is how long that part is.
func longBytes(s *job.Spec) int {
	size := len(s.Shell) + len(s.Setup) + len(s.Venv) + len(s.Conda) + len(s.Output) + len(s.Export) + len(s.Slurm)
	for _, word := range s.Argv {
		size += len(word)
	}
	for _, v := range s.Env {
		size += len(v.Key) + len(v.Value)
	}
	return size
}

// same compares quickly with what is mostly the same memory.
func (l *longText) same(o *longText) bool {
	return l.Shell == o.Shell && l.Setup == o.Setup && l.Venv == o.Venv && l.Conda == o.Conda && l.Output == o.Output &&
		l.Export == o.Export && l.Slurm == o.Slurm && slices.Equal(l.Argv, o.Argv) && slices.Equal(l.Env, o.Env)
}

// encode is the blob of the text, and its name. It begins with a letter that no
// hash of an environment has.
func (l *longText) encode() (name string, data []byte, err error) {
	carrier := job.Job{}
	l.into(&carrier.Spec)
	wide := *l
	if !isText(&carrier) {
		wide = longTextOf(&widened(&carrier).Spec)
		wide.Bytes = true
	}
	data, err = json.Marshal(&wide)
	return "text-" + BlobName(data), data, err
}

func decodeLongText(data []byte) (longText, error) {
	var l longText
	if err := json.Unmarshal(data, &l); err != nil || !l.Bytes {
		return l, err
	}
	var carrier job.Job
	l.into(&carrier.Spec)
	narrow(&carrier)
	return longTextOf(&carrier.Spec), nil
}

// writtenText is the long text of an unfinished job as it is on disk.
type writtenText struct {
	text longText
	blob string
}

// longTexts is what a transaction does about the long texts of its jobs.
type longTexts struct {
	of    map[*job.Job]writtenText
	blobs map[string][]byte // those that may be new
	stale []string          // blobs that a job no longer refers to
}

// longTexts finds the jobs with long text, and encodes what is not known to be on
// disk. It is empty for most transactions.
func (s *Store) longTexts(puts []*job.Job) (longTexts, error) {
	var found longTexts
	for _, j := range puts {
		before, known := s.written[j.Seq]
		if longBytes(&j.Spec) <= maxInline || j.TextGone {
			if known {
				found.stale = append(found.stale, before.blob)
			}
			continue
		}
		if found.of == nil {
			found.of, found.blobs = map[*job.Job]writtenText{}, map[string][]byte{}
		}
		now := longTextOf(&j.Spec)
		if known && now.same(&before.text) {
			found.of[j] = before
			continue
		}
		if ahead, is := s.ahead[j]; is && now.same(&ahead.text) {
			found.of[j] = ahead
			continue
		}
		blob, data, err := now.encode()
		if err != nil {
			return longTexts{}, err
		}
		found.of[j], found.blobs[blob] = writtenText{now, blob}, data
		if known && before.blob != blob {
			found.stale = append(found.stale, before.blob)
		}
	}
	return found, nil
}

// row is a job as it goes into its row, and the blob of its long text.
func (l *longTexts) row(j *job.Job) (inRow *job.Job, blob any) {
	long, is := l.of[j]
	switch {
	case is:
		short := *j
		(&longText{}).into(&short.Spec)
		return &short, long.blob
	case j.TextGone:
		return j, ""
	}
	return j, nil
}

// pages is how many pages of the log the texts of a transaction take beyond one
// for each row: in rows, in events, and as blobs.
func (l *longTexts) pages(tx *Tx) int {
	const pageBytes = 4 << 10
	pages := 0
	for _, j := range tx.Put {
		pages += min(longBytes(&j.Spec), maxInline) / pageBytes
	}
	for _, ev := range tx.Events {
		if ev.Job != nil {
			pages += min(longBytes(&ev.Job.Spec), maxSnapshot) / pageBytes
		}
	}
	for _, blobs := range []map[string][]byte{tx.Blobs, l.blobs} {
		for _, data := range blobs {
			pages += len(data) / pageBytes
		}
	}
	return pages
}

func (l *longTexts) has(j *job.Job) bool {
	_, is := l.of[j]
	return is
}

// dropTexts deletes blobs of long text unless a job refers to them, or is about to.
func (s *Store) dropTexts(ctx context.Context, blobs []string) error {
	if len(blobs) == 0 {
		return nil
	}
	ahead := s.aheadBlobs()
	for _, blob := range blobs {
		if ahead[blob] {
			continue
		}
		if _, err := s.statements.dropText.ExecContext(ctx, blob); err != nil {
			return err
		}
	}
	return nil
}

// remember notes what a transaction wrote: only unfinished jobs change often, and
// the others are the past.
func (s *Store) remember(tx *Tx, long *longTexts) {
	for _, j := range tx.Put {
		if bytes := longBytes(&j.Spec) + BlobBytes(j.Environ); j.State.Terminal() && bytes > plainText {
			s.pastText.Add(int64(bytes))
		}
		if text, is := long.of[j]; is && !j.State.Terminal() {
			s.written[j.Seq] = text
		} else {
			delete(s.written, j.Seq)
		}
	}
}

// aheadBytes is how much text WriteText writes in one transaction.
const aheadBytes = 1 << 20

// WriteText writes the long texts of new jobs before they are committed, so that
// their commit is small: other commits come in between. The caller calls done
// after the commit, or if there is none.
func (s *Store) WriteText(jobs []*job.Job) (done func(), err error) {
	var names []string
	blobs, bytes := map[string][]byte{}, 0
	done = func() { s.forgetAhead(jobs, names) }
	for i, j := range jobs {
		if longBytes(&j.Spec) > maxInline {
			text := longTextOf(&j.Spec)
			name, data, err := text.encode()
			if err != nil {
				done()
				return nil, err
			}
			s.mu.Lock()
			s.ahead[j] = writtenText{text, name}
			s.mu.Unlock()
			names, blobs[name], bytes = append(names, name), data, bytes+len(data)
		}
		if bytes >= aheadBytes || i == len(jobs)-1 {
			if err := s.writeBlobs(blobs); err != nil {
				done()
				return nil, fmt.Errorf("write text: %w", err)
			}
			blobs, bytes = map[string][]byte{}, 0
		}
	}
	return done, nil
}

func (s *Store) writeBlobs(blobs map[string][]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ballast.refill(); err != nil {
		return err
	}
	return s.commit(Tx{Blobs: blobs})
}

// forgetAhead deletes those of the texts that no job has.
func (s *Store) forgetAhead(jobs []*job.Job, names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range jobs {
		delete(s.ahead, j)
	}
	// What cannot be deleted now is swept later.
	_, _ = s.transact(func(ctx context.Context) (int64, error) { return 0, s.dropTexts(ctx, names) })
}

// aheadBlobs is the texts that were written for jobs that will be committed.
func (s *Store) aheadBlobs() map[string]bool {
	blobs := make(map[string]bool, len(s.ahead))
	for _, text := range s.ahead {
		blobs[text.blob] = true
	}
	return blobs
}
