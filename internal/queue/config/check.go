package config

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"berth/internal/machine/site"
	"berth/internal/queue/send"
)

// Check finds settings that contradict each other. It is called again after
// flags override the file.
func (c *Config) Check() error {
	if key, err := c.conflict(); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

// conflict names the key that contradicts the others.
func (c *Config) conflict() (key string, err error) {
	switch {
	case c.Mail.User != "" && c.Mail.Server == "":
		return "notify.smtp_user", errors.New("notify.smtp is missing")
	case c.Mail.User != "" && c.MailPassword == "":
		return "notify.smtp_user", errors.New("notify.smtp_password_file is missing")
	case c.MailPassword != "" && c.Mail.User == "":
		return "notify.smtp_password_file", errors.New("notify.smtp_user is missing")
	case c.Mail.User != "" && c.Mail.TLS == send.NoTLS:
		return "notify.smtp_tls", errors.New("expected starttls or tls with notify.smtp_user: a password is sent only over TLS")
	case c.TLSCert != "" && c.TLSKey == "":
		return "http.tls_cert", errors.New("http.tls_key is missing")
	case c.TLSKey != "" && c.TLSCert == "":
		return "http.tls_key", errors.New("http.tls_cert is missing")
	case c.MetricsListen != "" && c.MetricsListen == c.Listen && !strings.HasSuffix(c.Listen, ":0"):
		return "metrics.listen", errors.New("http.listen has this address already")
	}
	if err := checkListen(c.MetricsListen, allowedMetrics, false, "at any other address http.listen serves metrics, with a token"); c.MetricsListen != "" && err != nil {
		return "metrics.listen", err
	}
	if socket, isSocket := strings.CutPrefix(c.Listen, UnixListen); isSocket {
		return c.proxyConflict(socket)
	}
	if c.Listen != "" {
		return "http.listen", checkListen(c.Listen, allowedListen, c.TLSCert != "", "any other address needs http.tls_cert and http.tls_key")
	}
	return "", nil
}

// Warnings are settings that work and are unsafe.
func (c *Config) Warnings(shared bool) []string {
	if !shared || c.Listen == "" || c.TLSCert != "" || strings.HasPrefix(c.Listen, UnixListen) {
		return nil
	}
	return []string{fmt.Sprintf("http.listen is %s, without TLS: any user of this machine could listen there before the daemon does and pose as it; use tls_cert and tls_key, or unix:/run/berth/http.sock behind a proxy with TLS", c.Listen)}
}

// proxyConflict checks a Unix socket, behind a proxy with TLS.
func (c *Config) proxyConflict(socket string) (key string, err error) {
	switch {
	case !absolute(socket):
		return "http.listen", mismatch(c.Listen, allowedListen)
	case c.TLSCert != "":
		return "http.tls_cert", errors.New("the proxy before a Unix socket encrypts; leave it out")
	case len(c.Hosts) == 0:
		return "http.hosts", errors.New("expected the name that the proxy answers to, found none")
	}
	return "", nil
}

// Changed names the settings that differ from an older configuration: those that
// apply at once, and those that need a restart.
func (c Config) Changed(old Config) (live, needsRestart []string) {
	for _, k := range knownKeys {
		switch {
		case k.same(&c, &old):
		case k.restart:
			needsRestart = append(needsRestart, k.name())
		default:
			live = append(live, k.name())
		}
	}
	if !maps.Equal(c.Limits.Users, old.Limits.Users) || !maps.Equal(c.QueuedJobsOf, old.QueuedJobsOf) {
		live = append(live, usersTable)
	}
	return live, needsRestart
}

// namesPatience is how long all names of a config may take to look up.
const namesPatience = 5 * time.Second

// UnknownUsers says which users that the config names do not exist. One that cannot
// be looked up counts as known.
func (c *Config) UnknownUsers(ctx context.Context, users *site.Users) (warnings []string) {
	names := map[string]bool{}
	for name := range c.Limits.Users {
		names[name] = true
	}
	for name := range c.QueuedJobsOf {
		names[name] = true
	}
	ctx, cancel := context.WithTimeout(ctx, namesPatience)
	defer cancel()
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if _, err := users.ByName(ctx, name); errors.Is(err, site.ErrUnknownUser) {
			warnings = append(warnings, fmt.Sprintf("%s.%s: there is no user %s, so these limits apply to nobody", usersTable, name, name))
		}
	}
	return warnings
}
