package reason

import "time"

// Times are written in the zone of now, which is the reader's.

// onDay writes a time of today in the given layout, and any other with its date.
func onDay(t, now time.Time, today string) string {
	t = t.In(now.Location())
	if t.Year() == now.Year() && t.YearDay() == now.YearDay() {
		return t.Format(today)
	}
	return t.Format("2006-01-02 15:04")
}

// clock writes a time to the minute, or to the second if it is near.
func clock(t, now time.Time) string {
	if t.Sub(now) < 10*time.Minute {
		return onDay(t, now, time.TimeOnly)
	}
	return onDay(t, now, "15:04")
}

// between writes a range of time. A range that has begun has only an end.
func between(low, high, now time.Time) string {
	if !low.After(now) {
		return "by " + clock(high, now)
	}
	if a, b := clock(low, now), clock(high, now); a != b {
		return "between " + a + " and " + b
	}
	return "about " + clock(high, now)
}
