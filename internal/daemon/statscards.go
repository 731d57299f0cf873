package daemon

import "time"

// cardCells is into how many cells a window is cut.
const cardCells = 10_000

// cardTime is how much of each card's time was given out, whoever had it. Jobs
// may share a card, and then its time still counts once; so it has to be known
// when each card was held, and not only for how long.
//
// The window is cut into cells, and a cell of a card is full at most. That is
// exact, except in a cell in which several jobs on one card began or ended;
// of a week, a cell is a minute. It costs the same for a hundred jobs and for
// a million.
type cardTime struct {
	since time.Time
	cell  float64 // seconds
	cards map[int]*cardCellsOf
}

// cardCellsOf is one card: what was held in a cell in part, and by how much
// more than in the cell before it was held throughout.
type cardCellsOf struct {
	part []float64 // of a cell
	step []float64
}

func newCardTime(since, until time.Time) cardTime {
	return cardTime{since: since, cell: max(until.Sub(since).Seconds(), 0) / cardCells, cards: map[int]*cardCellsOf{}}
}

// add says that a card was held, for so large a part, within the window.
func (c *cardTime) add(card int, from, to time.Time, weight float64) {
	if c.cell <= 0 {
		return
	}
	of := c.cards[card]
	if of == nil {
		of = &cardCellsOf{part: make([]float64, cardCells), step: make([]float64, cardCells+1)}
		c.cards[card] = of
	}
	begin, end := c.place(from), c.place(to)
	first, last := int(begin), int(end)
	if first == last {
		if first < cardCells {
			of.part[first] += weight * (end - begin)
		}
		return
	}
	of.part[first] += weight * (float64(first+1) - begin)
	of.step[first+1] += weight
	of.step[last] -= weight
	if last < cardCells {
		of.part[last] += weight * (end - float64(last))
	}
}

// place is where a time lies, in cells.
func (c *cardTime) place(t time.Time) float64 {
	return min(max(t.Sub(c.since).Seconds()/c.cell, 0), cardCells)
}

// seconds is the sum over all cards.
func (c *cardTime) seconds() float64 {
	total := 0.0
	for _, of := range c.cards {
		throughout := 0.0
		for i, part := range of.part {
			throughout += of.step[i]
			total += min(throughout+part, 1)
		}
	}
	return total * c.cell
}
