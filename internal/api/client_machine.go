package api

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"time"
)

// Stats returns usage statistics.
func (c *Client) Stats(ctx context.Context, q StatsQuery) (Stats, error) {
	return call[Stats](ctx, c, http.MethodGet, "/v1/stats", q.values(), nil)
}

// backupTakes is how long a daemon may need to copy its store.
const backupTakes = 10 * time.Minute

// Backup writes a copy of the daemon's store to w. An error means that the copy
// is incomplete.
func (c *Client) Backup(ctx context.Context, w io.Writer) error {
	reply, err := c.start(taking(ctx, backupTakes), http.MethodPost, "/v1/backup", nil, nil, nil)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	if _, err := io.Copy(w, reply.Body); err != nil {
		return c.explain(ctx, err)
	}
	return nil
}

// Reload has the daemon read its config again, or judge one.
func (c *Client) Reload(ctx context.Context, r ReloadRequest) (Reloaded, error) {
	return call[Reloaded](ctx, c, http.MethodPost, "/v1/reload", nil, r)
}

// NewToken creates a token for remote access, with the caller's permissions.
func (c *Client) NewToken(ctx context.Context, r TokenRequest) (Token, error) {
	return call[Token](ctx, c, http.MethodPost, "/v1/tokens", nil, r)
}

// NewLogin makes a one-time login for the page.
func (c *Client) NewLogin(ctx context.Context, r LoginRequest) (Login, error) {
	return call[Login](ctx, c, http.MethodPost, "/v1/logins", nil, r)
}

// Tokens lists the caller's tokens, without their secrets.
func (c *Client) Tokens(ctx context.Context) ([]Token, error) {
	return call[[]Token](ctx, c, http.MethodGet, "/v1/tokens", nil, nil)
}

// RevokeTokens revokes all tokens of a user, of the caller if it is empty, and
// returns their ids.
func (c *Client) RevokeTokens(ctx context.Context, user string) ([]string, error) {
	query := url.Values{}
	if user != "" {
		query.Set("user", user)
	}
	all, err := call[revoked](ctx, c, http.MethodDelete, "/v1/tokens", query, nil)
	return all.IDs, err
}

// RevokeToken revokes a token.
func (c *Client) RevokeToken(ctx context.Context, id string) error {
	_, err := c.ask(ctx, http.MethodDelete, "/v1/tokens/"+url.PathEscape(id), nil, nil)
	return err
}
