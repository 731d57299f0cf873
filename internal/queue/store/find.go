package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"berth/internal/job"
)

// live is the SQL condition for unfinished jobs.
const live = "state IN ('queued', 'running', 'parked')"

// EachLive is Each for unfinished jobs.
func (s *Store) EachLive(fn func(*job.Job) error) error {
	return s.each("SELECT "+readColumns+" FROM jobs WHERE "+live+" ORDER BY seq", nil, fn)
}

// Range is a range of ids, including tasks of arrays: 3 to 7 includes 5 and 5_2.
// With Array it is a range of that array's tasks.
type Range struct {
	Array    string
	From, To int64
}

// Filter selects ended jobs. Empty fields do not restrict.
type Filter struct {
	IDs        []string // these, and the tasks of arrays with these ids
	Ranges     []Range  // or these; a few hundred at most
	User       string
	Name       string // a pattern, as in text.Glob
	Group      string
	Batch      string
	States     []job.State
	EndedSince time.Time
	EndedUntil time.Time

	Newest bool   // last ended first; otherwise in order of submission
	After  Cursor // only jobs after this in that order
	Limit  int

	// Pause is called between the steps of a long read, with how many rows the
	// last or next one has. An error ends the read. It may take its time: the read
	// holds nothing meanwhile. Nil: no pauses.
	Pause func(rows int) error
}

// Cursor is a position in an order: the last job seen.
type Cursor struct {
	Seq   int64
	Ended int64 // nanoseconds; for Newest
}

// LastOf is the highest-numbered job of a user, over or not, skipping so many
// of the newest. The tasks of an array count as one.
func (s *Store) LastOf(uid int, user string, skip int) (id string, ok bool, err error) {
	rows, err := s.reader.QueryContext(context.Background(),
		"SELECT id FROM jobs WHERE user = ? AND coalesce(rest ->> '$.uid', 0) = ? ORDER BY seq DESC", user, uid)
	if err != nil {
		return "", false, fmt.Errorf("read jobs: %w", s.classify(err))
	}
	defer rows.Close()
	seen := ""
	for rows.Next() {
		if err := rows.Scan(&id); err != nil {
			return "", false, fmt.Errorf("read jobs: %w", s.classify(err))
		}
		base, _, _ := strings.Cut(id, "_")
		if base == seen {
			continue
		}
		if seen = base; skip == 0 {
			return base, true, nil
		}
		skip--
	}
	return "", false, rows.Err()
}

// Snapshots are the ids of the snapshots that jobs of a user refer to, over or
// not.
func (s *Store) Snapshots(uid int, user string) ([]string, error) {
	rows, err := s.reader.QueryContext(context.Background(),
		"SELECT DISTINCT spec ->> '$.snapshot.id' AS snapshot FROM jobs WHERE user = ? AND coalesce(rest ->> '$.uid', 0) = ? AND snapshot IS NOT NULL ORDER BY snapshot", user, uid)
	if err != nil {
		return nil, fmt.Errorf("read snapshots: %w", s.classify(err))
	}
	defer rows.Close()
	ids := []string{}
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, fmt.Errorf("read snapshots: %w", s.classify(err))
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// where renders the filter as a condition.
func (f *Filter) where() (string, []any) {
	parts, args := []string{"NOT " + live}, []any(nil)
	add := func(part string, values ...any) {
		parts = append(parts, part)
		args = append(args, values...)
	}
	if len(f.IDs)+len(f.Ranges) > 0 {
		part, values := f.whereIDs()
		add(part, values...)
	}
	if f.User != "" {
		add("user = ?", f.User)
	}
	if f.Name != "" {
		add("coalesce(spec ->> '$.name', 'job' || id) GLOB ?", strings.ReplaceAll(f.Name, "[", "[[]"))
	}
	if f.Group != "" {
		add("spec ->> '$.group' = ?", f.Group)
	}
	if f.Batch != "" {
		add(`instr(spec, '"batch":') AND spec ->> '$.batch' = ?`, f.Batch)
	}
	if len(f.States) > 0 {
		marks := make([]string, len(f.States))
		for i, state := range f.States {
			marks[i] = "?"
			args = append(args, string(state))
		}
		parts = append(parts, "state IN ("+strings.Join(marks, ", ")+")")
	}
	if !f.EndedSince.IsZero() {
		add("ended_at >= ?", nanos(f.EndedSince))
	}
	if !f.EndedUntil.IsZero() {
		add("ended_at < ?", nanos(f.EndedUntil))
	}
	return strings.Join(parts, " AND "), args
}

// fewIDs is how many ids are looked up one by one. More are compared with every
// row: SQL bounds the size of a condition.
const fewIDs = 100

// afterTasks is the character after "_": the tasks of array 17 are between "17_"
// and "17`".
const afterTasks = "`"

// whereIDs renders the ids and ranges.
func (f *Filter) whereIDs() (string, []any) {
	const tasks = "id >= ? AND id < ?"
	var parts []string
	var args []any
	if len(f.IDs) > fewIDs {
		list, err := json.Marshal(f.IDs)
		if err != nil {
			panic("bug: " + err.Error())
		}
		parts = append(parts, "id IN (SELECT value FROM json_each(?)) OR substr(id, 1, instr(id, '_') - 1) IN (SELECT value FROM json_each(?))")
		args = append(args, string(list), string(list))
	} else {
		for _, id := range f.IDs {
			parts = append(parts, "id = ? OR "+tasks)
			args = append(args, id, id+"_", id+afterTasks)
		}
	}
	for _, r := range f.Ranges {
		if r.Array == "" {
			parts = append(parts, "seq >= ? AND CAST(id AS INTEGER) BETWEEN ? AND ?")
			args = append(args, r.From, r.From, r.To)
			continue
		}
		parts = append(parts, tasks+" AND CAST(substr(id, instr(id, '_') + 1) AS INTEGER) BETWEEN ? AND ?")
		args = append(args, r.Array+"_", r.Array+afterTasks, r.From, r.To)
	}
	return "(" + strings.Join(parts, " OR ") + ")", args
}
