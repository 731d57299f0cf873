package sched

// Contenders are the users with jobs that wait for room on a card.
type Contenders struct {
	user    string
	several bool
}

// Besides reports whether somebody else is among them.
func (c Contenders) Besides(user string) bool { return c.several || c.user != "" && c.user != user }

// Contended says who waits for room on each card, by its index. A job that a limit
// or the host holds back does not wait for the card.
func Contended(s State) map[int]Contenders {
	d := newDecision(&s)
	cards := map[int]Contenders{}
	for _, g := range d.state.Queue.classes {
		first, _ := g.jobs.at(listPos{})
		h := g.head(first)
		if h.gpus == 0 || !d.now.host.fits(&h.amounts) || d.limits.hold(g, &h.amounts, d.walk.accountOf(g.userQueue)) {
			continue
		}
		for _, at := range d.outlook(&h).candidates.places {
			index := d.now.slots[at].Index
			c := cards[index]
			cards[index] = Contenders{user: g.user, several: c.several || c.user != "" && c.user != g.user}
		}
	}
	return cards
}
