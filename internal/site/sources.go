package site

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/internal/text"
)

// service is a name service that asks a process of this machine, which in
// turn asks others.
type service struct {
	name    string
	sockets []string // where that process listens
	configs []string // without any of these it is named but not in use
}

var services = []service{
	{"sss", []string{"/var/lib/sss/pipes/nss"}, []string{"/etc/sssd/sssd.conf", "/etc/sssd/conf.d/*.conf"}},
	{"ldap", []string{"/run/nslcd/socket", "/var/run/nslcd/socket"}, []string{"/etc/nslcd.conf"}},
	{"winbind", []string{"/run/samba/winbindd/pipe", "/var/run/samba/winbindd/pipe", "/tmp/.winbindd/pipe"}, []string{"/etc/samba/smb.conf"}},
}

// localSources read this machine's own files, or tell of this machine's own
// services: when they know nothing, there is nothing.
var localSources = []string{
	"files", "compat", "db", "altfiles", "extrausers", "systemd", "mymachines", "libvirt", "libvirt_guest", "role", "usrfiles", "lwres", "myhostname",
}

// sourcesOf are the name services of a database, in order.
func (m machine) sourcesOf(database string) []string {
	for line := range strings.Lines(m.read("/etc/nsswitch.conf")) {
		line, _, _ = strings.Cut(line, "#")
		name, list, found := strings.Cut(line, ":")
		if !found || strings.TrimSpace(name) != database {
			continue
		}
		var sources []string
		for word := range strings.FieldsSeq(dropActions(list)) {
			sources = append(sources, word)
		}
		return sources
	}
	return nil
}

// dropActions removes what is in brackets: what to do on which answer.
func dropActions(list string) string {
	for {
		before, after, found := strings.Cut(list, "[")
		if !found {
			return list
		}
		_, rest, _ := strings.Cut(after, "]")
		list = before + " " + rest
	}
}

// reachable fails where a service that these databases depend on is known to
// be down.
func (m machine) reachable(ctx context.Context, databases ...string) error {
	var asked []string
	for _, database := range databases {
		for _, source := range m.sourcesOf(database) {
			if slices.Contains(asked, source) {
				continue
			}
			asked = append(asked, source)
			if i := slices.IndexFunc(services, func(s service) bool { return s.name == source }); i >= 0 {
				if err := m.probe(ctx, services[i]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// settled fails where an empty answer of a database need not mean that there
// is nothing: a service is down, or is one that cannot be judged.
func (m machine) settled(ctx context.Context, database string) error {
	if err := m.reachable(ctx, database); err != nil {
		return err
	}
	for _, source := range m.sourcesOf(database) {
		known := slices.ContainsFunc(services, func(s service) bool { return s.name == source })
		if !known && !slices.Contains(localSources, source) {
			return fmt.Errorf("no entry, and whether the name service %q could be reached is not known", text.Said(source))
		}
	}
	return nil
}

// probe knocks at a service's door. That nobody asks it anything is fine with
// all of them.
func (m machine) probe(ctx context.Context, s service) error {
	inUse := slices.ContainsFunc(s.configs, func(pattern string) bool {
		found, _ := filepath.Glob(m.path(pattern)) // the patterns are ours
		return len(found) > 0
	})
	if !inUse {
		return nil
	}
	var err error
	dialer := net.Dialer{Timeout: 2 * time.Second}
	for _, socket := range s.sockets {
		var conn net.Conn
		if conn, err = dialer.DialContext(ctx, "unix", m.path(socket)); err == nil {
			conn.Close()
			return nil
		}
	}
	return fmt.Errorf("the name service %q does not answer: %w", s.name, err)
}
