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

// service is a name service that asks a local process, which asks other
// machines.
type service struct {
	name    string
	sockets []string // of that process
	configs []string // without any of these, the service is not in use
}

var services = []service{
	{"sss", []string{"/var/lib/sss/pipes/nss"}, []string{"/etc/sssd/sssd.conf", "/etc/sssd/conf.d/*.conf"}},
	{"ldap", []string{"/run/nslcd/socket", "/var/run/nslcd/socket"}, []string{"/etc/nslcd.conf"}},
	{"winbind", []string{"/run/samba/winbindd/pipe", "/var/run/samba/winbindd/pipe", "/tmp/.winbindd/pipe"}, []string{"/etc/samba/smb.conf"}},
}

// localSources read only this machine's files and services: no answer from
// them means no such entry.
var localSources = []string{
	"files", "compat", "db", "altfiles", "extrausers", "systemd", "mymachines", "libvirt", "libvirt_guest", "role", "usrfiles", "lwres", "myhostname",
}

// sourcesOf lists the name services of a database in order.
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

// dropActions removes the actions in brackets, such as [NOTFOUND=return].
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

// reachable returns an error if a service that these databases depend on is
// down.
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

// settled returns an error if an empty answer from a database may not mean "no
// such entry": a service is down, or cannot be checked.
func (m machine) settled(ctx context.Context, database string) error {
	if err := m.reachable(ctx, database); err != nil {
		return err
	}
	for _, source := range m.sourcesOf(database) {
		known := slices.ContainsFunc(services, func(s service) bool { return s.name == source })
		if !known && !slices.Contains(localSources, source) {
			return fmt.Errorf("no entry, but berth cannot check whether the name service %q was reachable", text.Said(source))
		}
	}
	return nil
}

// probe connects to a service and disconnects again, which all of them
// tolerate.
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
