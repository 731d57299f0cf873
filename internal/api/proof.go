package api

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"berth/internal/text/problem"
)

// A request of a session is signed. Nothing that it carries helps whoever
// receives it in the daemon's place: the signature covers the request and a
// challenge that only this daemon gave out, and is good once.
//
//	Berth-Session:   ID.CHALLENGE.NONCE.BODY.SIGNATURE
//	Berth-Challenge: the challenge to sign from now on, in each reply
//
// BODY is the body's SHA-256, NONCE a random 64-bit number. SIGNATURE is that of
// the lines berth-session, method, path with query, ID, CHALLENGE, NONCE and
// BODY. Bytes are in base64url without padding.
const (
	headerSession   = "Berth-Session"
	headerChallenge = "Berth-Challenge"
)

// Bounds on signed requests.
const (
	challengePeriod    = 2 * time.Minute // then the next one, and this one is good for as long again
	noncesPerChallenge = 4096            // of one session
	maxProofBytes      = 512
)

// signedRequest is the header of a session's request.
type signedRequest struct {
	proof     Proof
	challenge string
	nonce     uint64
	body      [sha256.Size]byte
}

// readSigned reads the header; false if it is not one.
func readSigned(r *http.Request) (s signedRequest, ok bool) {
	header := r.Header.Get(headerSession)
	parts := strings.Split(header, ".")
	if len(header) > maxProofBytes || len(parts) != 5 {
		return s, false
	}
	body, err := encoding.DecodeString(parts[3])
	if err != nil || len(body) != len(s.body) {
		return s, false
	}
	copy(s.body[:], body)
	if s.proof.Signature, err = encoding.DecodeString(parts[4]); err != nil {
		return s, false
	}
	if s.nonce, err = strconv.ParseUint(parts[2], 10, 64); err != nil {
		return s, false
	}
	s.proof.Session, s.challenge = parts[0], parts[1]
	s.proof.Signed = []byte(strings.Join(append([]string{"berth-session", r.Method, r.RequestURI}, parts[:4]...), "\n"))
	return s, true
}

// challenges are what the sessions of one listener sign, and the signatures that
// were used. A challenge is random and known to no other daemon, nor to this one
// after a restart.
type challenges struct {
	mu    sync.Mutex
	now   challenge
	last  challenge // still good
	since time.Time
}

type challenge struct {
	text  string
	spent map[string]map[uint64]bool // by session
}

// turn replaces a challenge that is old. The caller holds the lock.
func (c *challenges) turn(now time.Time) {
	age := now.Sub(c.since)
	if age < challengePeriod && c.now.text != "" {
		return
	}
	if c.last = c.now; age >= 2*challengePeriod {
		c.last = challenge{}
	}
	c.now, c.since = challenge{text: rand.Text(), spent: map[string]map[uint64]bool{}}, now
}

func (c *challenges) current(now time.Time) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn(now)
	return c.now.text
}

// find is a challenge that is still good; nil if it is not.
func (c *challenges) find(text string, now time.Time) *challenge {
	c.turn(now)
	for _, one := range []*challenge{&c.now, &c.last} {
		if text != "" && one.text == text {
			return one
		}
	}
	return nil
}

func (c *challenges) good(text string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.find(text, now) != nil
}

// spend uses up a signature that was found good.
func (c *challenges) spend(s *signedRequest, now time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.find(s.challenge, now)
	if one == nil {
		return errOldSignature
	}
	spent := one.spent[s.proof.Session]
	switch {
	case spent == nil:
		spent = map[uint64]bool{}
		one.spent[s.proof.Session] = spent
	case spent[s.nonce]:
		return errOldSignature
	case len(spent) >= noncesPerChallenge:
		return problem.Newf(problem.TooMuch, "wait two minutes", "too many requests within two minutes: %d", len(spent))
	}
	spent[s.nonce] = true
	return nil
}

// errOldSignature answers a request that the page has to sign anew.
var errOldSignature = &problem.Problem{Kind: problem.Forbidden, What: "this request was signed for another daemon, or was sent before", Hint: "sign it again, for the Berth-Challenge of this reply", Err: errNoToken}

// door is a listener whose callers name themselves in each request.
type door struct {
	way        Way
	answersTo  func(host string) bool
	challenges challenges
}

func newDoor(own netip.Addr, via string, o TCPOptions) *door {
	return &door{way: Way{Via: via, Listener: o.ListenerID}, answersTo: hostCheck(own, o.Hosts)}
}

// sessionCaller is the user of a session's request. What is cheap to check comes
// first; a signature is used up only if it is good.
func (x *exchange) sessionCaller(ctx context.Context) (Caller, error) {
	now := time.Now()
	x.w.Header().Set(headerChallenge, x.door.challenges.current(now))
	s, ok := readSigned(x.r)
	if !ok || !x.door.challenges.good(s.challenge, now) {
		return Caller{}, errOldSignature
	}
	caller, err := x.identified(ctx, Peer{UID: -1, GID: -1, Proof: s.proof, Way: x.way()})
	if err != nil {
		return Caller{}, err
	}
	if err := x.door.challenges.spend(&s, now); err != nil {
		return Caller{}, err
	}
	x.bodySum, x.bodyHash = &s.body, sha256.New()
	return caller, nil
}
