package api

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/base64"
	"math/big"
)

var encoding = base64.RawURLEncoding.Strict()

// Proof shows that a request comes from whoever holds a session's private key.
type Proof struct {
	Session           string // its id
	Signed, Signature []byte
}

// By reports whether the key signed the request.
func (p Proof) By(key string) bool {
	public, err := publicKey(key)
	if err != nil || len(p.Signature) != 64 {
		return false
	}
	hash := sha256.Sum256(p.Signed)
	r, s := new(big.Int).SetBytes(p.Signature[:32]), new(big.Int).SetBytes(p.Signature[32:])
	return ecdsa.Verify(public, hash[:], r, s)
}

func publicKey(key string) (*ecdsa.PublicKey, error) {
	point, err := encoding.DecodeString(key)
	if err != nil {
		return nil, err
	}
	return ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
}

func validKey(key string) bool {
	_, err := publicKey(key)
	return err == nil
}
