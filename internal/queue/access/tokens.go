package access

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"berth/internal/api"
	"berth/internal/text"
	"berth/internal/text/problem"
)

const day = 24 * time.Hour

// Bounds on tokens for remote access.
const (
	tokensPerUser   = 20
	tokensInAll     = 1000
	tokenTTL        = 30 * day
	maxTokenTTL     = 365 * day
	maxTokenName    = 64
	tokenIDBytes    = 5
	tokenSecretSize = 32
)

// TokenEntry is a stored token: the hash of its secret, never the secret. The
// secret is long and random, so a plain hash is safe. A session has no secret,
// but the public key of a browser. Another field is another format of the store
// (store/schema): an older berth would drop it.
type TokenEntry struct {
	ID      string    `json:"id"`
	Name    string    `json:"name,omitempty"`
	User    string    `json:"user"`
	UID     int       `json:"uid"`
	Hash    string    `json:"hash,omitempty"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
	// Session is a login of a browser, made from the token Parent; empty: from a
	// one-time login. It is good at one listener only (listenerID).
	Session  bool   `json:"session,omitempty"`
	Parent   string `json:"parent,omitempty"`
	Key      string `json:"key,omitempty"`
	Listener string `json:"listener,omitempty"`

	revoked bool // but not yet on disk
}

func (t *TokenEntry) public() api.Token {
	return api.Token{ID: t.ID, Name: t.Name, User: t.User, Expires: t.Expires}
}

// use is the last use of a token. It is kept in memory only: nothing is written
// for a request that changes nothing.
type use struct {
	at   time.Time
	from string
}

// good reports whether the token is valid.
func (t *TokenEntry) good(now time.Time) bool { return !t.revoked && now.Before(t.Expires) }

// Tokens identify callers that the kernel cannot vouch for.
type Tokens struct {
	changing sync.Mutex // held while a change is written, which may be slow
	save     func(string) error

	mu      sync.RWMutex
	entries []TokenEntry // replaced as a whole, never changed in place
	uses    map[string]use
	lives   map[string]life
}

// life ends when a token is revoked or expires.
type life struct {
	context.Context
	end context.CancelFunc
}

// NewTokens restores the saved tokens; save makes the list durable.
func NewTokens(saved string, save func(string) error) (*Tokens, error) {
	t := &Tokens{save: save, uses: map[string]use{}, lives: map[string]life{}}
	if saved == "" {
		return t, nil
	}
	if err := json.Unmarshal([]byte(saved), &t.entries); err != nil {
		return nil, fmt.Errorf("read tokens: %w", err)
	}
	return t, nil
}

func (t *Tokens) Current() []TokenEntry {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.entries
}

func (t *Tokens) replace(entries []TokenEntry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.entries = entries
	left := map[string]bool{}
	for _, e := range entries {
		left[e.ID] = !e.revoked
	}
	maps.DeleteFunc(t.uses, func(id string, _ use) bool { return !left[id] })
	maps.DeleteFunc(t.lives, func(id string, l life) bool {
		if !left[id] {
			l.end()
		}
		return !left[id]
	})
}

// Write makes a list durable, without revoked and expired tokens, and puts it
// into effect.
func (t *Tokens) Write(list []TokenEntry, now time.Time) error {
	kept := slices.DeleteFunc(slices.Clone(list), func(e TokenEntry) bool { return !e.good(now) })
	if err := t.save(string(text.MustJSON(kept))); err != nil {
		return fmt.Errorf("save tokens: %w", err)
	}
	t.replace(kept)
	return nil
}

// Note remembers a use, and returns what ends with the token; at once if it has
// ended since it was checked.
func (t *Tokens) Note(id, from string, now time.Time) context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := slices.IndexFunc(t.entries, func(e TokenEntry) bool { return e.ID == id && e.good(now) })
	if at < 0 {
		return ended
	}
	t.uses[id] = use{now.UTC().Truncate(time.Second), from}
	found, known := t.lives[id]
	if !known {
		found.Context, found.end = context.WithDeadline(context.Background(), t.entries[at].Expires)
		t.lives[id] = found
	}
	return found
}

// ended is the life of a token that is over.
var ended = func() context.Context {
	ctx, end := context.WithCancel(context.Background())
	end()
	return ctx
}()

// TTL is a number of seconds as a time. A number that no duration can hold is
// refused like any that is too large.
func TTL(seconds int64) time.Duration {
	const most = int64(maxTokenTTL/time.Second) + 1
	return time.Duration(max(-1, min(seconds, most))) * time.Second
}

// Create makes a token with a user's permissions. The secret is only in the
// reply.
func (t *Tokens) Create(user string, uid int, name string, ttl time.Duration, now time.Time) (api.Token, error) {
	ttl = cmp.Or(ttl, tokenTTL)
	switch {
	case ttl < time.Second || ttl > maxTokenTTL:
		return api.Token{}, problem.Newf(problem.Invalid, "", "ttl: expected one second to %d days", maxTokenTTL/day)
	case len(name) > maxTokenName || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return api.Token{}, problem.Newf(problem.Invalid, "", "name: expected at most %d bytes of plain text", maxTokenName)
	}
	t.changing.Lock()
	defer t.changing.Unlock()
	list := slices.DeleteFunc(slices.Clone(t.Current()), func(e TokenEntry) bool { return !e.good(now) })
	own, all := count(list, false, uid)
	switch {
	case own >= tokensPerUser:
		return api.Token{}, problem.Newf(problem.TooMuch, "revoke one you do not need any more: berth token revoke", "%s already has %d tokens, the most per user", user, own)
	case all >= tokensInAll:
		return api.Token{}, problem.Newf(problem.TooMuch, "ask an administrator to revoke some", "there are already %d tokens, the most for all users", all)
	}
	return t.add(list, TokenEntry{Name: name, User: user, UID: uid, Expires: now.Add(ttl)}, now)
}

// Open makes a session for the user of a token, with a browser's public key, at
// a listener; a parent without an id means a one-time login. A user with too
// many sessions loses the oldest: a forgotten browser must not keep anybody out.
func (t *Tokens) Open(parent TokenEntry, key, listener string, now time.Time) (api.Token, error) {
	t.changing.Lock()
	defer t.changing.Unlock()
	list := slices.DeleteFunc(slices.Clone(t.Current()), func(e TokenEntry) bool { return !e.good(now) })
	if parent.ID != "" && !slices.ContainsFunc(list, func(e TokenEntry) bool { return e.ID == parent.ID }) {
		return api.Token{}, problem.Newf(problem.Forbidden, "create one with: berth token create", "the token is unknown or has expired")
	}
	own, all := count(list, true, parent.UID)
	if own >= sessionsPerUser {
		oldest := slices.IndexFunc(list, func(e TokenEntry) bool { return e.Session && e.UID == parent.UID })
		list = slices.Delete(list, oldest, oldest+1)
	} else if all >= sessionsInAll {
		return api.Token{}, problem.Newf(problem.TooMuch, "ask an administrator to revoke some", "there are already %d sessions, the most for all users", all)
	}
	expires := now.Add(sessionTTL)
	if parent.ID != "" && parent.Expires.Before(expires) {
		expires = parent.Expires
	}
	return t.add(list, TokenEntry{Name: "browser", User: parent.User, UID: parent.UID, Expires: expires, Session: true, Parent: parent.ID, Key: key, Listener: listener}, now)
}

// IsSession reports whether an id is that of a session.
func (t *Tokens) IsSession(id string) bool {
	return slices.ContainsFunc(t.Current(), func(e TokenEntry) bool { return e.ID == id && e.Session })
}

// EndSessions ends the sessions of the listeners that are over.
func (t *Tokens) EndSessions(over func(listener string) bool) error {
	_, err := t.end(func(e *TokenEntry) bool { return e.Session && over(e.Listener) })
	return err
}

// count counts the sessions, or the other tokens, of a user and of all.
func count(list []TokenEntry, sessions bool, uid int) (own, all int) {
	for _, e := range list {
		if e.Session == sessions {
			all++
			if e.UID == uid {
				own++
			}
		}
	}
	return own, all
}

// add gives an entry its id and its secret and writes the list. The caller holds
// the lock.
func (t *Tokens) add(list []TokenEntry, entry TokenEntry, now time.Time) (api.Token, error) {
	entry.ID = freshID(list)
	secret := ""
	if !entry.Session {
		secret = "berth_" + entry.ID + "_" + randomText(tokenSecretSize)
		entry.Hash = hashOf(secret)
	}
	entry.Created, entry.Expires = now.UTC().Truncate(time.Second), entry.Expires.UTC().Truncate(time.Second)
	if err := t.Write(append(list, entry), now); err != nil {
		return api.Token{}, err
	}
	token := entry.public()
	token.Secret = secret
	return token, nil
}

// Check finds the token of a secret. Its timing reveals nothing: only hashes are
// compared, each from end to end.
func (t *Tokens) Check(secret string, now time.Time) (TokenEntry, bool) {
	hash := []byte(hashOf(secret))
	for _, e := range t.Current() {
		if subtle.ConstantTimeCompare(hash, []byte(e.Hash)) == 1 && e.good(now) && !e.Session {
			return e, true
		}
	}
	return TokenEntry{}, false
}

// Prove finds the session whose key signed a request that came by a listener.
func (t *Tokens) Prove(p api.Proof, listener string, now time.Time) (TokenEntry, bool) {
	for _, e := range t.Current() {
		if e.ID == p.Session && e.Session && e.good(now) {
			return e, listener != "" && e.Listener == listener && p.By(e.Key)
		}
	}
	return TokenEntry{}, false
}

// List shows a user's tokens, or with all every user's, by expiry. It includes
// tokens that are revoked but still on disk.
func (t *Tokens) List(uid int, all bool, now time.Time) []api.Token {
	found := []api.Token{}
	for _, e := range t.Current() {
		if (all || e.UID == uid) && now.Before(e.Expires) {
			shown := e.public()
			if last, used := t.lastUse(e.ID); used {
				shown.Used, shown.UsedFrom = &last.at, last.from
			}
			found = append(found, shown)
		}
	}
	slices.SortFunc(found, func(a, b api.Token) int {
		return cmp.Or(a.Expires.Compare(b.Expires), cmp.Compare(a.ID, b.ID))
	})
	return found
}

func (t *Tokens) lastUse(id string) (last use, used bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	last, used = t.uses[id]
	return last, used
}

// Revoke ends a token and the sessions made from it. Only administrators see
// other users' tokens.
func (t *Tokens) Revoke(id string, uid int, admin bool) error {
	ids, err := t.end(func(e *TokenEntry) bool { return e.ID == id && (admin || e.UID == uid) })
	if len(ids) == 0 && err == nil {
		return problem.Newf(problem.NotFound, "berth token list shows yours", "there is no token %s", text.Quote(id, 60))
	}
	return err
}

// RevokeAll ends all tokens and sessions of a user, and returns their ids.
func (t *Tokens) RevokeAll(user string, uid int) ([]string, error) {
	return t.end(func(e *TokenEntry) bool { return e.User == user || e.UID == uid })
}

// end ends tokens, and the sessions made from them, at once, even if the disk is
// full: a leaked token must not stay valid for that.
func (t *Tokens) end(which func(*TokenEntry) bool) (ids []string, err error) {
	t.changing.Lock()
	defer t.changing.Unlock()
	list := slices.Clone(t.Current())
	for i := range list {
		if which(&list[i]) {
			list[i].revoked = true
			ids = append(ids, list[i].ID)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	for i := range list {
		list[i].revoked = list[i].revoked || list[i].Parent != "" && slices.Contains(ids, list[i].Parent)
	}
	t.replace(list)
	if err := t.Write(list, time.Time{}); err != nil {
		p := problem.Newf(problem.Unable, "revoke it again when the disk has room", "token %s is revoked, but a restart would bring it back: %v", strings.Join(ids, ", "), err)
		p.Err = err
		return ids, p
	}
	return ids, nil
}

func hashOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

func freshID(list []TokenEntry) string {
	for {
		id := randomText(tokenIDBytes)
		if !slices.ContainsFunc(list, func(e TokenEntry) bool { return e.ID == id }) {
			return id
		}
	}
}

// randomText is this many random bytes as letters and digits that are easy to
// type.
func randomText(bytes int) string {
	random := make([]byte, bytes)
	_, _ = rand.Read(random) // never fails: the program would crash instead
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(random))
}
