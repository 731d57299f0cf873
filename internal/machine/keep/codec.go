package keep

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// codec passes the fields of a value by key. One list of them, the value's visit,
// serves both directions: it appends to the fields, or reads from them. A key that
// is missing leaves its value unchanged.
type codec struct {
	fields  []Field
	at      int // behind the field that was read last
	reading bool
	quoted  bool // texts are quoted, as in a record's block
	strict  bool // a missing number is an error
	err     error
}

func (c *codec) put(key, value string) { c.fields = append(c.fields, Field{key, value}) }

func (c *codec) fail(key string, err error) {
	if err != nil && c.err == nil {
		c.err = fmt.Errorf("%s: %w", key, err)
	}
}

// get finds a field, which usually is the next.
func (c *codec) get(key string) (value string, found bool) {
	at := slices.IndexFunc(c.fields[c.at:], func(f Field) bool { return f.Key == key })
	if at >= 0 {
		at += c.at
	} else if at = slices.IndexFunc(c.fields[:c.at], func(f Field) bool { return f.Key == key }); at < 0 {
		return "", false
	}
	c.at = at + 1
	return c.fields[at].Value, true
}

func (c *codec) has(key string) bool {
	value, _ := c.get(key)
	return value != ""
}

// text passes a text. Empty ones are omitted.
func (c *codec) text(key string, p *string) {
	value, found := *p, *p != ""
	if c.reading {
		value, found = c.get(key)
	}
	switch {
	case !found:
	case c.reading && c.quoted:
		var err error
		*p, err = strconv.Unquote(value)
		c.fail(key, err)
	case c.reading:
		*p = strings.Clone(value) // so that a large order can be freed
	case c.quoted:
		c.put(key, strconv.Quote(value))
	default:
		c.put(key, value)
	}
}

// texts passes a list, as fields that follow one another. What is read shares their
// memory.
func (c *codec) texts(key string, p *[]string) {
	if !c.reading {
		for _, value := range *p {
			c.put(key, value)
		}
		return
	}
	for value, found := c.get(key); found; value, found = c.fields[c.at-1].Value, true {
		*p = append(*p, value)
		if c.at == len(c.fields) || c.fields[c.at].Key != key {
			break
		}
		c.at++
	}
}

// kept passes a list that outlasts what it is read from.
func (c *codec) kept(key string, p *[]string) {
	c.texts(key, p)
	for i := 0; c.reading && i < len(*p); i++ {
		(*p)[i] = strings.Clone((*p)[i])
	}
}

func (c *codec) bool(key string, p *bool) {
	if !c.reading {
		c.put(key, strconv.FormatBool(*p))
	} else if value, found := c.get(key); found {
		var err error
		*p, err = strconv.ParseBool(value)
		c.fail(key, err)
	}
}

func (c *codec) int64(key string, p *int64) {
	if !c.reading {
		c.put(key, strconv.FormatInt(*p, 10))
	} else if value, found := c.get(key); found || c.strict {
		n, err := strconv.ParseInt(value, 10, 64)
		*p = n
		c.fail(key, err)
	}
}

func (c *codec) uint(key string, p *uint64) {
	if !c.reading {
		c.put(key, strconv.FormatUint(*p, 10))
	} else if value, found := c.get(key); found {
		n, err := strconv.ParseUint(value, 10, 64)
		*p = n
		c.fail(key, err)
	}
}

func (c *codec) int(key string, p *int) {
	n := int64(*p)
	c.int64(key, &n)
	*p = int(n)
}

// span passes a duration in whole units.
func (c *codec) span(key string, p *time.Duration, unit time.Duration) {
	n := int64(*p / unit)
	c.int64(key, &n)
	if c.reading {
		*p = time.Duration(n) * unit
	}
}

// time passes a time. The zero time is omitted.
func (c *codec) time(key string, p *time.Time) {
	if !c.reading && p.IsZero() {
		return
	}
	n := p.UnixNano()
	if c.reading {
		n = 0
	}
	if c.int64(key, &n); c.reading && n != 0 {
		*p = time.Unix(0, n)
	}
}
