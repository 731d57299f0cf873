package run

import (
	"strings"

	"berth/internal/keep"
)

// idLength is how long the name of a container is: a SHA-256 in hexadecimal.
const idLength = 64

// maxMonitors bounds the way from a process in a container to what watches it.
const maxMonitors = 32

// containerIn finds the container in the text of /proc/PID/cgroup, of either
// version. Everybody writes it in their own way: docker-ID.scope,
// libpod-ID.scope, cri-containerd-ID.scope, crio-ID.scope, or just ID. In a
// container in a container it is the outer one, which this host knows.
//
// users says that the place is one in which a user may make cgroups and name
// them as they like: there a name proves nothing.
func containerIn(text string) (id string, users bool) {
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) < 3 {
			continue
		}
		users = false
		for part := range strings.SplitSeq(fields[2], "/") {
			users = users || part == "user.slice" || strings.HasPrefix(part, "user@")
			part = strings.TrimSuffix(part, ".scope")
			if id = part[strings.LastIndexByte(part, '-')+1:]; isContainerID(id) {
				return id, users
			}
		}
	}
	return "", false
}

func isContainerID(text string) bool {
	return len(text) == idLength && strings.IndexFunc(text, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'f')
	}) < 0
}

// byContainer is for processes that are nobody's descendants. podman leaves a
// monitor behind that has its environment; docker has to be asked, whose own
// containers are not in a user's part of the hierarchy.
func (a *Attribution) byContainer(p keep.Process, container string, users bool) (key string, ok, pending bool) {
	for range maxMonitors {
		if p.Parent <= 1 {
			break
		}
		parent, err := a.world.process(p.Parent)
		if err != nil {
			break
		}
		p = parent
		if key, ok = a.byEnvironment(p.PID); ok {
			return key, true, false
		}
	}
	if users {
		return "", false, false
	}
	value, settled := a.containers.token(container)
	if !settled {
		return "", false, true
	}
	// Whoever can have docker say this can do anything on this machine.
	key, ok = a.byToken(value, func(Holder) bool { return true })
	return key, ok, false
}
