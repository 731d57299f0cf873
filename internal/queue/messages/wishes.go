package messages

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"berth/internal/queue/notify"
	"berth/internal/queue/store"
)

// wishPrefix begins the names under which the store keeps what users set about
// messages.
const wishPrefix = "notify.user."

// wish is what one user set. The name guards against a later user of the same
// number.
type wish struct {
	User  string   `json:"user"`
	Rules []string `json:"rules,omitempty"` // for jobs that have none of their own
	Key   []byte   `json:"key,omitempty"`   // signs webhooks
}

// wishes are those of all users, as they are on disk.
type wishes struct {
	mu sync.Mutex
	of map[int]wish
}

// metas is the part of the store that wishes use.
type metas interface {
	Metas(prefix string) (map[string]string, error)
	Commit(tx store.Tx) error
}

func (w *wishes) load(s metas) error {
	stored, err := s.Metas(wishPrefix)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.of = map[int]wish{}
	for name, value := range stored {
		uid, err := strconv.Atoi(strings.TrimPrefix(name, wishPrefix))
		var one wish
		if err == nil && value != "" && json.Unmarshal([]byte(value), &one) == nil {
			w.of[uid] = one
		}
	}
	return nil
}

// get is what a user set; nothing if the number was another user's.
func (w *wishes) get(uid int, user string) wish {
	w.mu.Lock()
	defer w.mu.Unlock()
	if one := w.of[uid]; one.User == user {
		return one
	}
	return wish{User: user}
}

// keyOf is a user's key, whatever the user is called now.
func (w *wishes) keyOf(uid int) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.of[uid].Key
}

// set changes what a user set, on disk first.
func (w *wishes) set(s metas, uid int, user string, change func(*wish)) (wish, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	one := w.of[uid]
	if one.User != user {
		one = wish{User: user}
	}
	change(&one)
	data, err := json.Marshal(one)
	if err != nil {
		return one, err
	}
	if err := s.Commit(store.Tx{Meta: map[string]string{wishPrefix + strconv.Itoa(uid): string(data)}}); err != nil {
		return one, fmt.Errorf("store what user %s is told: %w", user, err)
	}
	w.of[uid] = one
	return one, nil
}

// rules are a user's rules for jobs that have none of their own.
func (w *wishes) rules(uid int, user string) []notify.Rule {
	rules, _ := notify.ParseRules(w.get(uid, user).Rules) // read when they were set
	return rules
}
