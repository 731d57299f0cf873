// Package messages tells users and administrators what happened in a queue: events
// become messages, which wait in the outbox of the store until a process of the user
// whom they concern has sent them. It also answers the requests about messages.
//
// It does not decide what is worth an event and knows neither mail nor webhooks. No
// message leaves before it is on disk, and none is sent as root. Nothing waits for a
// message, so a slow or broken target holds up no job.
//
// Read messages.go first, then teller.go, facts.go, news.go, wishes.go, deliver.go
// and requests.go.
package messages
