package series

import "time"

// Kind is what a track is about.
type Kind uint8

// The kinds of tracks.
const (
	GPU    Kind = iota + 1 // a card
	Job                    // an attempt of a job on one of its cards
	Parked                 // an attempt of a job while it was parked
)

// Track names one line of points.
type Track struct {
	Kind    Kind
	Owner   string // the user whose job it is; empty: a card
	ID      string // of the job, or the UUID of the card
	Attempt int
	GPU     int // the job's card
}

// Unknown is a value that could not be measured.
const Unknown = -1

// Point is what was measured until At, since the point before.
type Point struct {
	At      time.Time
	MiB     int64   // the most memory; Unknown: not measured
	UtilPct float64 // mean utilisation of the card; Unknown: not measured
	PowerW  float64 // its mean power; likewise
	TempC   float64 // its highest temperature; likewise
	// Begins means that nothing was measured between the point before and this one.
	Begins bool
}

// Reading is one measurement of a track.
type Reading struct {
	Track Track
	Point Point
}

// merged is one point for several. It is never empty.
type merged struct {
	Point
	util, power mean
}

type mean struct {
	sum float64
	n   int
}

func (m *mean) add(value float64) {
	if value >= 0 {
		m.sum += value
		m.n++
	}
}

func (m mean) value() float64 {
	if m.n == 0 {
		return Unknown
	}
	return m.sum / float64(m.n)
}

func (m *merged) add(p Point) {
	first := m.At.IsZero()
	m.util.add(p.UtilPct)
	m.power.add(p.PowerW)
	m.UtilPct, m.PowerW = m.util.value(), m.power.value()
	if first {
		m.MiB, m.TempC = p.MiB, p.TempC
	}
	m.MiB, m.TempC = max(m.MiB, p.MiB), max(m.TempC, p.TempC)
	m.At, m.Begins = p.At, m.Begins || p.Begins
}

// Thin returns at most most points for points in order of time. It merges
// neighbours in equal stretches of time, so that no maximum is lost, and keeps
// the times of the first and the last point and of each stretch's maximum.
func Thin(points []Point, most int) []Point {
	if len(points) <= most {
		return points
	}
	first, last := points[0].At, points[len(points)-1].At
	span := last.Sub(first)
	stretch := func(p Point) int {
		if span <= 0 {
			return 0
		}
		return min(most-1, int(float64(p.At.Sub(first))/float64(span)*float64(most)))
	}
	thin := make([]Point, 0, most)
	for from := 0; from < len(points); {
		var m merged
		peak, at := from, stretch(points[from])
		to := from
		for ; to < len(points) && stretch(points[to]) == at; to++ {
			m.add(points[to])
			if points[to].MiB > points[peak].MiB {
				peak = to
			}
		}
		m.At = points[peak].At
		switch {
		case from == 0 && most > 1:
			m.At = first
		case to == len(points) && most > 1:
			m.At = last
		}
		thin = append(thin, m.Point)
		from = to
	}
	return thin
}
