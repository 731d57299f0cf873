package keep

import (
	"fmt"
	"strconv"
	"time"
)

// blockWriter appends lines to a block. It omits empty texts and zero times.
type blockWriter struct{ block []byte }

func (w *blockWriter) key(key string) { w.block = append(append(w.block, key...), '=') }
func (w *blockWriter) end()           { w.block = append(w.block, '\n') }

func (w *blockWriter) number(key string, n int64) {
	w.key(key)
	w.block = strconv.AppendInt(w.block, n, 10)
	w.end()
}

func (w *blockWriter) text(key string, p *string, limit int, fit func(string, int) string) {
	if *p == "" {
		return
	}
	if s := fit(*p, limit); s != "" {
		w.key(key)
		w.block = strconv.AppendQuote(w.block, s)
		w.end()
	}
}

func (w *blockWriter) uint(key string, p *uint64) {
	w.key(key)
	w.block = strconv.AppendUint(w.block, *p, 10)
	w.end()
}

func (w *blockWriter) int(key string, p *int)              { w.number(key, int64(*p)) }
func (w *blockWriter) int64(key string, p *int64)          { w.number(key, *p) }
func (w *blockWriter) millis(key string, p *time.Duration) { w.number(key, p.Milliseconds()) }

func (w *blockWriter) bool(key string, p *bool) {
	w.key(key)
	w.block = strconv.AppendBool(w.block, *p)
	w.end()
}

func (w *blockWriter) time(key string, p *time.Time) {
	if !p.IsZero() {
		w.number(key, p.UnixNano())
	}
}

// blockReader holds a block's values by key. A missing key leaves its field
// unchanged.
type blockReader map[string]string

// read fills the record. The first invalid value is an error.
func (r *Record) read(values blockReader) error {
	f := &fieldReader{values: values}
	r.visit(f)
	return f.err
}

type fieldReader struct {
	values blockReader
	err    error
}

// parse reads one value, if it is there.
func (f *fieldReader) parse(key string, read func(value string) error) {
	value, found := f.values[key]
	if !found || f.err != nil {
		return
	}
	if err := read(value); err != nil {
		f.err = fmt.Errorf("%s: %w", key, err)
	}
}

func (f *fieldReader) number(key string, set func(int64)) {
	f.parse(key, func(value string) error {
		n, err := strconv.ParseInt(value, 10, 64)
		if err == nil {
			set(n)
		}
		return err
	})
}

func (f *fieldReader) text(key string, p *string, _ int, _ func(string, int) string) {
	f.parse(key, func(value string) (err error) { *p, err = strconv.Unquote(value); return err })
}

func (f *fieldReader) uint(key string, p *uint64) {
	f.parse(key, func(value string) (err error) { *p, err = strconv.ParseUint(value, 10, 64); return err })
}

func (f *fieldReader) bool(key string, p *bool) {
	f.parse(key, func(value string) (err error) { *p, err = strconv.ParseBool(value); return err })
}

func (f *fieldReader) int(key string, p *int)     { f.number(key, func(n int64) { *p = int(n) }) }
func (f *fieldReader) int64(key string, p *int64) { f.number(key, func(n int64) { *p = n }) }

func (f *fieldReader) time(key string, p *time.Time) {
	f.number(key, func(n int64) { *p = time.Unix(0, n) })
}

func (f *fieldReader) millis(key string, p *time.Duration) {
	f.number(key, func(n int64) { *p = time.Duration(n) * time.Millisecond })
}
