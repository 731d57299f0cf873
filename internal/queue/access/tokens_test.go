package access

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"berth/internal/api"
	"berth/internal/text/problem"
)

var tokenTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// tokenStore keeps what is saved, and can be full.
type tokenStore struct {
	saved string
	full  bool
}

func (s *tokenStore) save(value string) error {
	if s.full {
		return errors.New("disk full")
	}
	s.saved = value
	return nil
}

func (s *tokenStore) open(t interface{ Fatal(...any) }) *Tokens {
	opened, err := NewTokens(s.saved, s.save)
	if err != nil {
		t.Fatal(err)
	}
	return opened
}

func createToken(t testing.TB, of *Tokens, user string, uid int, ttl time.Duration) api.Token {
	t.Helper()
	token, err := of.Create(user, uid, "laptop", ttl, tokenTime)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestATokenOpensTheDoorUntilItRunsOut(t *testing.T) {
	t.Parallel()
	disk := &tokenStore{}
	token := createToken(t, disk.open(t), "ann", 1000, 0)
	if want := tokenTime.Add(30 * day); !token.Expires.Equal(want) {
		t.Errorf("good until %v, want %v", token.Expires, want)
	}
	parts := strings.Split(token.Secret, "_")
	if len(parts) != 3 || parts[0] != "berth" || parts[1] != token.ID || len(parts[2]) < 50 {
		t.Errorf("secret %q of %q", token.Secret, token.ID)
	}
	if strings.Contains(disk.saved, parts[2]) {
		t.Error("the secret is on disk")
	}
	again := disk.open(t) // after a restart
	for when, want := range map[time.Time]bool{tokenTime: true, token.Expires.Add(-time.Second): true, token.Expires: false} {
		found, ok := again.Check(token.Secret, when)
		if ok != want || ok && (found.UID != 1000 || found.User != "ann" || found.ID != token.ID) {
			t.Errorf("at %v: %+v, %v", when, found, ok)
		}
	}
}

func TestOtherSecretsOpenNothing(t *testing.T) {
	t.Parallel()
	of := (&tokenStore{}).open(t)
	token := createToken(t, of, "ann", 1000, time.Hour)
	secret := token.Secret
	for _, wrong := range []string{
		"", "berth", "berth__", "berth_" + token.ID + "_", secret + "a", secret[:len(secret)-1],
		strings.ToUpper(secret), " " + secret, hashOf(secret), strings.Replace(secret, token.ID, "aaaaaaaa", 1), strings.Repeat("x", 1<<20),
	} {
		if _, ok := of.Check(wrong, tokenTime); ok {
			t.Errorf("%.80q opened the door", wrong)
		}
	}
}

func TestTokensAreTheirOwners(t *testing.T) {
	t.Parallel()
	disk := &tokenStore{}
	of := disk.open(t)
	ann, bob := createToken(t, of, "ann", 1000, time.Hour), createToken(t, of, "bob", 1001, 2*time.Hour)
	ids := func(list []api.Token) (found []string) {
		for _, token := range list {
			if token.Secret != "" {
				t.Error("a list shows a secret")
			}
			found = append(found, token.ID)
		}
		return found
	}
	if diff := cmp.Diff([]string{ann.ID}, ids(of.List(1000, false, tokenTime))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{ann.ID, bob.ID}, ids(of.List(0, true, tokenTime))); diff != "" {
		t.Error(diff)
	}
	if err := of.Revoke(ann.ID, 1001, false); problem.KindOf(err) != problem.NotFound {
		t.Errorf("bob revoking ann's: %v", err)
	}
	if err := of.Revoke("nothing", 0, true); problem.KindOf(err) != problem.NotFound {
		t.Errorf("revoking what is not there: %v", err)
	}
	if err := of.Revoke(ann.ID, 1000, false); err != nil {
		t.Error(err)
	}
	if err := of.Revoke(bob.ID, 0, true); err != nil {
		t.Error(err)
	}
	for _, opened := range []*Tokens{of, disk.open(t)} {
		for _, token := range []api.Token{ann, bob} {
			if _, ok := opened.Check(token.Secret, tokenTime); ok {
				t.Errorf("%s's revoked token opens the door", token.User)
			}
		}
	}
}

func TestTokensAreBounded(t *testing.T) {
	t.Parallel()
	of := (&tokenStore{}).open(t)
	for range tokensPerUser {
		createToken(t, of, "ann", 1000, time.Hour)
	}
	if _, err := of.Create("ann", 1000, "", time.Hour, tokenTime); problem.KindOf(err) != problem.TooMuch {
		t.Errorf("one more than a user may have: %v", err)
	}
	createToken(t, of, "bob", 1001, time.Hour) // ann's are not bob's
	if _, err := of.Create("ann", 1000, "", time.Hour, tokenTime.Add(2*time.Hour)); err != nil {
		t.Errorf("when the others have run out: %v", err)
	}
	if n := len(of.Current()); n != 1 {
		t.Errorf("%d are kept, %d of them for nothing", n, n-1)
	}
	full := make([]TokenEntry, tokensInAll)
	for i := range full {
		full[i] = TokenEntry{ID: strconv.Itoa(i), UID: 2000 + i, Expires: tokenTime.Add(time.Hour)}
	}
	saved, err := json.Marshal(full)
	if err != nil {
		t.Fatal(err)
	}
	of = (&tokenStore{saved: string(saved)}).open(t)
	if _, err := of.Create("last", 1, "", time.Hour, tokenTime); problem.KindOf(err) != problem.TooMuch {
		t.Errorf("one more than there may be: %v", err)
	}
}

func TestTokensThatMakeNoSense(t *testing.T) {
	t.Parallel()
	of := (&tokenStore{}).open(t)
	for _, c := range []struct {
		name string
		ttl  time.Duration
	}{{"", -time.Hour}, {"", time.Millisecond}, {"", 366 * day}, {strings.Repeat("x", 65), 0}, {"a\nb", 0}, {"\x1b[2J", 0}, {"\xff", 0}} {
		if _, err := of.Create("ann", 1000, c.name, c.ttl, tokenTime); problem.KindOf(err) != problem.Invalid {
			t.Errorf("%q for %v: %v", c.name, c.ttl, err)
		}
	}
	if _, err := NewTokens("no json", nil); err == nil {
		t.Error("what is no list was read as one")
	}
}

func TestTokensOnAFullDisk(t *testing.T) {
	t.Parallel()
	disk := &tokenStore{}
	of := disk.open(t)
	token := createToken(t, of, "ann", 1000, time.Hour)
	disk.full = true
	if _, err := of.Create("ann", 1000, "", time.Hour, tokenTime); err == nil || len(of.Current()) != 1 {
		t.Errorf("a token nobody wrote down: %v, %d", err, len(of.Current()))
	}
	if err := of.Revoke(token.ID, 1000, false); problem.KindOf(err) != problem.Unable {
		t.Errorf("a revocation nobody wrote down: %v", err)
	}
	if _, ok := of.Check(token.Secret, tokenTime); ok {
		t.Error("a token that was to be revoked still opens the door")
	}
	disk.full = false
	if err := of.Revoke(token.ID, 1000, false); err != nil {
		t.Errorf("the second try: %v", err)
	}
	if _, ok := disk.open(t).Check(token.Secret, tokenTime); ok {
		t.Error("a restart brought it back")
	}
}

func TestManyUseTokensAtOnce(t *testing.T) {
	t.Parallel()
	of := (&tokenStore{}).open(t)
	var wait sync.WaitGroup
	for uid := range 8 {
		wait.Go(func() {
			for range 10 {
				token, err := of.Create("u", uid, "", time.Hour, tokenTime)
				if err != nil {
					t.Error(err)
					return
				}
				if _, ok := of.Check(token.Secret, tokenTime); !ok {
					t.Error("a token just made opens nothing")
				}
				of.List(uid, false, tokenTime)
				if err := of.Revoke(token.ID, uid, false); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	if left := of.List(0, true, tokenTime); len(left) != 0 {
		t.Errorf("%d left", len(left))
	}
}

// TestTokensAreWhatWasMadeAndNotRevoked holds them against a plain list, with
// restarts and a disk that is full at times.
func TestTokensAreWhatWasMadeAndNotRevoked(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		disk := &tokenStore{}
		of := disk.open(t)
		now := tokenTime
		good := map[string]api.Token{} // by secret
		t.Repeat(map[string]func(*rapid.T){
			"create": func(t *rapid.T) {
				ttl := time.Duration(rapid.IntRange(1, 100).Draw(t, "hours")) * time.Hour
				if token, err := of.Create("u", rapid.IntRange(1, 3).Draw(t, "uid"), "", ttl, now); err == nil {
					good[token.Secret] = token
				}
			},
			"revoke": func(t *rapid.T) {
				for secret, token := range good {
					if err := of.Revoke(token.ID, 0, true); err == nil || problem.KindOf(err) == problem.NotFound {
						delete(good, secret)
					} else if _, ok := of.Check(secret, now); ok {
						t.Fatal("revoked, and still good")
					} else if disk.full = false; of.Revoke(token.ID, 0, true) == nil {
						delete(good, secret)
					}
					return
				}
			},
			"time goes on": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(1, 40).Draw(t, "hours")) * time.Hour)
			},
			"the disk": func(t *rapid.T) { disk.full = rapid.Bool().Draw(t, "full") },
			"restart":  func(*rapid.T) { of = disk.open(t) },
			"": func(t *rapid.T) {
				for secret, token := range good {
					if _, ok := of.Check(secret, now); ok != now.Before(token.Expires) {
						t.Fatalf("at %v, a token good until %v: %v", now, token.Expires, ok)
					}
				}
			},
		})
	})
}

// TestAnotherFieldOfATokenIsAnotherFormat: an older berth drops a field that it
// does not know when it writes the list back.
func TestAnotherFieldOfATokenIsAnotherFormat(t *testing.T) {
	t.Parallel()
	var fields []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[TokenEntry]()) {
		if f.IsExported() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			fields = append(fields, name)
		}
	}
	known := []string{"id", "name", "user", "uid", "hash", "created", "expires", "session", "parent", "key", "listener"}
	if diff := cmp.Diff(known, fields); diff != "" {
		t.Errorf("add a step to internal/queue/store/schema, where a comment will do, and the field here (-known +now):\n%s", diff)
	}
}

// TestWhatEndsWithAToken: a revoked token ends what it opened at once, and no other
// token's; one that expires does so by itself.
func TestWhatEndsWithAToken(t *testing.T) {
	t.Parallel()
	disk := &tokenStore{}
	all := disk.open(t)
	begin := func(ttl time.Duration) (string, context.Context) {
		token, err := all.Create("ann", 1000, "laptop", ttl, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return token.ID, all.Note(token.ID, "", time.Now())
	}
	first, revoked := begin(time.Hour)
	_, other := begin(time.Hour)
	_, brief := begin(time.Second)
	if err := all.Revoke(first, 1000, false); err != nil {
		t.Fatal(err)
	}
	if revoked.Err() == nil || other.Err() != nil {
		t.Errorf("after the first was revoked: it has ended with %v, the other with %v", revoked.Err(), other.Err())
	}
	if all.Note(first, "", time.Now()).Err() == nil {
		t.Error("a use of a revoked token lives on")
	}
	<-brief.Done()
	if other.Err() != nil {
		t.Error("the other ended with one that expired")
	}
}
