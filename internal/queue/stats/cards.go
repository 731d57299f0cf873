package stats

import "time"

// cardCells is the number of cells in a period.
const cardCells = 10_000

// cardTime is how much of each card's time was allocated. Jobs may share a card,
// and its time still counts once, so it must be known when each card was held,
// not only for how long.
//
// The period is cut into cells, and a card fills a cell at most once. That is
// exact except in a cell where several jobs on one card began or ended; of a
// week, a cell is a minute. It costs the same for a hundred jobs as for a
// million.
type cardTime struct {
	since time.Time
	cell  float64 // seconds
	cards map[int]*cardCellsOf
}

// cardCellsOf is one card: the parts of cells it was held, and the changes from
// cell to cell in how much of it was held throughout.
type cardCellsOf struct {
	part []float64 // of a cell
	step []float64
}

func newCardTime(since, until time.Time) cardTime {
	return cardTime{since: since, cell: max(until.Sub(since).Seconds(), 0) / cardCells, cards: map[int]*cardCellsOf{}}
}

// add records that this part of a card was held, within the period.
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

// place converts a time to cells.
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
