package api

import (
	"net/http"
	"slices"
)

func (x *exchange) postToken() error {
	var r TokenRequest
	if err := decode(x.body(x.limits.BodyBytes), &r); err != nil {
		return err
	}
	return x.reply(x.backend.NewToken(x.r.Context(), x.caller, r))
}

func (x *exchange) getTokens() error {
	tokens, err := x.backend.Tokens(x.r.Context(), x.caller)
	tokens = slices.Clone(list(tokens))
	for i := range tokens {
		tokens[i].Secret = "" // shown only once, at creation
	}
	return x.reply(tokens, err)
}

func (x *exchange) deleteTokens() error {
	p, err := x.params()
	if err != nil {
		return err
	}
	user := p.text("user")
	if err := p.done(); err != nil {
		return err
	}
	ids, err := x.backend.RevokeTokens(x.r.Context(), x.caller, user)
	return x.reply(revoked{IDs: list(ids)}, err)
}

func (x *exchange) deleteToken() error {
	id, err := x.id()
	if err != nil {
		return err
	}
	if err := x.backend.RevokeToken(x.r.Context(), x.caller, id); err != nil {
		return err
	}
	x.w.WriteHeader(http.StatusNoContent)
	return nil
}
