package testkit

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// Page signs requests as the page does in a browser.
type Page struct {
	t         testing.TB
	key       *ecdsa.PrivateKey
	ID        string // of the session
	Challenge string // that the daemon gave out last
}

// NewPage makes a key pair.
func NewPage(t testing.TB) *Page {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Must(t, err)
	return &Page{t: t, key: key}
}

// Key is the public key, as a request to log in has it.
func (p *Page) Key() string {
	p.t.Helper()
	point, err := p.key.PublicKey.Bytes()
	Must(p.t, err)
	return base64.RawURLEncoding.EncodeToString(point)
}

// Header is what the page sends with a request.
func (p *Page) Header(method, path, body string) string {
	p.t.Helper()
	nonce := make([]byte, 8)
	_, _ = rand.Read(nonce) // never fails
	sum := sha256.Sum256([]byte(body))
	said := []string{p.ID, p.Challenge, strconv.FormatUint(binary.LittleEndian.Uint64(nonce), 10), base64.RawURLEncoding.EncodeToString(sum[:])}
	signature := p.Sign(strings.Join(append([]string{"berth-session", method, path}, said...), "\n"))
	return strings.Join(append(said, base64.RawURLEncoding.EncodeToString(signature)), ".")
}

// Sign signs a text.
func (p *Page) Sign(text string) []byte {
	p.t.Helper()
	hash := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, p.key, hash[:])
	Must(p.t, err)
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return signature
}

// Hear takes the challenge of a reply and reports whether it is another one.
func (p *Page) Hear(reply http.Header) bool {
	given := reply.Get("Berth-Challenge")
	news := given != "" && given != p.Challenge
	if news {
		p.Challenge = given
	}
	return news
}
