package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Letter is an entry of the outbox, whose content the store does not know.
type Letter struct {
	ID   int64
	Data []byte // JSON; nil: delete it
}

// Outbox is all entries in order, and the highest number an entry ever had.
func (s *Store) Outbox() (letters []Letter, last int64, err error) {
	if letters, err = s.letters(); err == nil {
		last, _, err = s.counter(counterOutbox)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read outbox: %w", s.classify(err))
	}
	for _, l := range letters {
		last = max(last, l.ID)
	}
	return letters, last, nil
}

func (s *Store) letters() (letters []Letter, err error) {
	rows, err := s.reader.QueryContext(context.Background(), "SELECT id, data FROM outbox ORDER BY id")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var l Letter
		if err := rows.Scan(&l.ID, &l.Data); err != nil {
			return nil, err
		}
		letters = append(letters, l)
	}
	return letters, rows.Err()
}

// Taken is the number of the last event that the outbox was filled from; false:
// it never was. Later events are not deleted.
func (s *Store) Taken() (event int64, ever bool, err error) {
	event, ever, err = s.counter(counterTaken)
	if err != nil {
		return 0, false, fmt.Errorf("read outbox: %w", s.classify(err))
	}
	return event, ever, nil
}

func (s *Store) counter(name string) (value int64, found bool, err error) {
	err = s.lookup.QueryRowContext(context.Background(), "SELECT value FROM counters WHERE name = ?", name).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, false, nil
	}
	return value, err == nil, err
}

// putOutbox writes the entries of a transaction, and how far it read the events.
func (s *Store) putOutbox(ctx context.Context, tx Tx) error {
	for _, l := range tx.Outbox {
		var err error
		if l.Data == nil {
			// The row with the highest number may go.
			_, err = s.conn.ExecContext(ctx, `INSERT INTO counters (name, value) VALUES (?, ?)
				ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)`, counterOutbox, l.ID)
			if err == nil {
				_, err = s.conn.ExecContext(ctx, "DELETE FROM outbox WHERE id = ?", l.ID)
			}
		} else {
			_, err = s.conn.ExecContext(ctx, "INSERT INTO outbox (id, data) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET data = excluded.data", l.ID, string(l.Data))
		}
		if err != nil {
			return fmt.Errorf("put message %d: %w", l.ID, err)
		}
	}
	if tx.Taken == nil {
		return nil
	}
	_, err := s.statements.counter.ExecContext(ctx, counterTaken, *tx.Taken)
	return err
}
