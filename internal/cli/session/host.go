package session

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/spf13/cobra"

	"berth/internal/api"
	"berth/internal/machine/site"
	"berth/internal/text/problem"
)

// remote is a daemon on another machine.
type remote struct {
	Address string `toml:"address"` // https://gpu1.example.org:7878, or unix: and the path of a socket
	Token   string `toml:"token"`
	CA      string `toml:"ca"` // PEM file of the authority for its certificate; empty: the system's
}

const hostHelp = "a daemon on another machine: `address`, or its name in hosts.toml (default BERTH_HOST)"

// HostFlag lets every verb parse --host, even before the verb, so that one that
// works on this machine only can say so.
func HostFlag(root *cobra.Command) {
	root.PersistentFlags().String("host", "", hostHelp)
	_ = root.PersistentFlags().MarkHidden("host") // it exists
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if f := cmd.Flag("host"); f.Changed && f.Hidden {
			return problem.Newf(problem.Invalid, fmt.Sprintf("log in to that machine and run %s there", cmd.CommandPath()),
				"%s works on this machine only and does not take --host", cmd.CommandPath())
		}
		return nil
	}
}

// hostFor is the remote daemon that --host names, or BERTH_HOST if no socket was
// given.
func hostFor(cmd *cobra.Command, socket string, getenv func(string) string) (*remote, error) {
	f := cmd.Flag("host")
	if f == nil || f.Hidden {
		return nil, nil
	}
	name := f.Value.String()
	switch {
	case f.Changed && socket != "":
		return nil, problem.Newf(problem.Invalid, "leave one of them out", "expected --host or --socket, found both")
	case f.Changed && name == "": // --host "$UNSET" must not cancel jobs on this machine
		return nil, problem.Newf(problem.Invalid, "--host https://gpu1.example.org:7878", "expected an address after --host, found nothing")
	case !f.Changed && socket == "":
		name = getenv("BERTH_HOST")
	}
	if name == "" {
		return nil, nil
	}
	return findHost(name, getenv)
}

// findHost looks up a name or an address in hosts.toml and the environment.
func findHost(name string, getenv func(string) string) (*remote, error) {
	places, err := site.PrivatePlaces(getenv)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(filepath.Dir(places.Config), "hosts.toml")
	hosts, err := readHosts(file)
	if err != nil {
		return nil, err
	}
	found, listed := hosts[name]
	if !listed {
		if found.Address = wholeAddress(name); found.Address == "" {
			return nil, problem.Newf(problem.Invalid, "--host https://gpu1.example.org:7878", "expected an address or a name from %s, found %q", file, name)
		}
		for _, h := range hosts {
			if wholeAddress(h.Address) == found.Address {
				found = h
			}
		}
	}
	found.Address = wholeAddress(found.Address)
	if found.socket() != "" { // the kernel says who calls
		return &found, nil
	}
	if found.Token == "" { // a machine with a token of its own never gets another machine's
		found.Token = getenv("BERTH_HOST_TOKEN")
	}
	if found.CA != "" && !filepath.IsAbs(found.CA) { // relative to hosts.toml, not to the current directory
		found.CA = filepath.Join(filepath.Dir(file), found.CA)
	}
	if found.Token == "" {
		return nil, problem.Newf(problem.Unable, fmt.Sprintf("create one there with berth token create, and put it into BERTH_HOST_TOKEN or %s", file), "no token for %s", found.Address)
	}
	return &found, nil
}

// wholeAddress adds the scheme to an address. It is empty if there is neither a
// scheme nor a port.
func wholeAddress(address string) string {
	if strings.Contains(address, "://") {
		return strings.TrimRight(address, "/")
	}
	host, _, err := net.SplitHostPort(address)
	if path, isSocket := strings.CutPrefix(address, socketScheme); isSocket && path != "" {
		return address
	} else if isSocket || err != nil || host == "" {
		return ""
	}
	return "https://" + address
}

// socketScheme is in front of the path of a socket that is forwarded here, such
// as by ssh -L.
const socketScheme = "unix:"

// socket is the path of the forwarded socket, if the address is one.
func (r *remote) socket() string {
	path, isSocket := strings.CutPrefix(r.Address, socketScheme)
	if !isSocket {
		return ""
	}
	return path
}

// readHosts reads the list of machines. It holds tokens, so it refuses a file
// that other users can read.
func readHosts(path string) (map[string]remote, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		return nil, problem.Newf(problem.Unable, "chmod 600 "+path, "other users can read the tokens in %s", path)
	}
	hosts := map[string]remote{}
	meta, err := toml.DecodeFile(path, &hosts)
	if err != nil {
		return nil, problem.Newf(problem.Unable, "berth token --help shows an example", "read %s: %w", path, err)
	}
	if unknown := meta.Undecoded(); len(unknown) > 0 {
		return nil, problem.Newf(problem.Unable, "the keys are address, token and ca", "%s: unknown key %s", path, unknown[0])
	}
	return hosts, nil
}

func (r *remote) dial() (*api.Client, error) {
	if path := r.socket(); path != "" {
		return api.DialOwn(path), nil
	}
	var config *tls.Config
	if r.CA != "" {
		pem, err := os.ReadFile(r.CA)
		if err != nil {
			return nil, problem.Newf(problem.Unable, "ca in hosts.toml is the path of a PEM file", "certificate of %s: %w", r.Address, err)
		}
		config = &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, problem.Newf(problem.Unable, "ca in hosts.toml is the path of a PEM file", "expected a certificate in %s, found none", r.CA)
		}
	}
	return api.DialRemote(r.Address, r.Token, config)
}
