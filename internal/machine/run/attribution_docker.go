package run

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"berth/internal/machine/keep"
)

// tokenLabel is the label with which a job marks a container as its own. Its
// value is that of the variable BERTH_TOKEN.
const tokenLabel = "berth.token"

const (
	dockerSocket = "/var/run/docker.sock"
	// askBudget is how long docker may take; no caller waits for it.
	askBudget = 2 * time.Second
	// unclaimedFor is how long a container without a job is remembered before
	// docker is asked again.
	unclaimedFor = 10 * time.Second
	// maxContainers bounds the memory; when it is full, docker is asked about
	// all containers again.
	maxContainers = 1024
	// maxAsking bounds concurrent requests; beyond it a container waits for a
	// later look.
	maxAsking = 8
	// maxInspected bounds what is read of docker's answer.
	maxInspected = 4 << 20
)

// containers caches docker's answers about containers.
type containers struct {
	socket string
	now    func() time.Time
	client *http.Client

	mu     sync.Mutex
	asking int
	known  map[string]*container
}

type container struct {
	token  string // "": it has none
	asking bool
	again  time.Time // when to ask again; zero: no answer yet
}

func newContainers(socket string, now func() time.Time) *containers {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	return &containers{
		socket: socket, now: now, known: make(map[string]*container),
		client: &http.Client{Timeout: askBudget, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}},
	}
}

// token is the value of the container's token label. settled is false until
// docker has answered for the first time. It does not wait.
func (c *containers) token(id string) (value string, settled bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.known[id]
	if found != nil && (found.asking || found.token != "" || c.now().Before(found.again)) {
		return found.token, found.token != "" || !found.again.IsZero()
	}
	if info, err := os.Stat(c.socket); err != nil || info.Mode()&os.ModeSocket == 0 {
		return "", true // there is no docker to ask
	}
	if c.asking >= maxAsking {
		return "", found != nil
	}
	if found == nil {
		if len(c.known) >= maxContainers {
			c.forget()
		}
		found = &container{}
		c.known[id] = found
	}
	found.asking = true
	c.asking++
	go c.ask(id, found)
	return "", !found.again.IsZero()
}

// forget drops the entries without a request in progress.
func (c *containers) forget() {
	for id, found := range c.known {
		if !found.asking {
			delete(c.known, id)
		}
	}
}

func (c *containers) ask(id string, found *container) {
	value := c.inspect(id)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asking--
	found.asking, found.token, found.again = false, value, c.now().Add(unclaimedFor)
}

// inspect asks docker for the container's token. After any error it has none:
// its processes are external until docker is asked again.
func (c *containers) inspect(id string) string {
	reply, err := c.client.Get("http://docker/containers/" + id + "/json")
	if err != nil {
		return ""
	}
	defer reply.Body.Close()
	var said struct {
		Config struct {
			Labels map[string]string
			Env    []string
		}
	}
	if reply.StatusCode != http.StatusOK || json.NewDecoder(io.LimitReader(reply.Body, maxInspected)).Decode(&said) != nil {
		return ""
	}
	if value := said.Config.Labels[tokenLabel]; value != "" {
		return value
	}
	for _, entry := range said.Config.Env {
		if value, ok := strings.CutPrefix(entry, keep.TokenVariable+"="); ok {
			return value
		}
	}
	return ""
}
