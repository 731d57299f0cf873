// Package cards is what berth knows about the machine's cards: the last reading,
// who uses what, their health, and what other berths booked.
//
// It knows no queue, and of jobs only that somebody holds a card. Start with
// cards.go; look.go says when the cards are read, health.go what follows, and
// bookings.go what the berths of a machine tell each other.
package cards
