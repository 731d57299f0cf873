package run

import (
	"strings"

	"berth/internal/machine/keep"
)

// idLength is the length of a container's id: a SHA-256 in hexadecimal.
const idLength = 64

// maxMonitors bounds the walk from a process in a container to its monitor.
const maxMonitors = 32

// containerIn finds the container in the text of /proc/PID/cgroup, of either
// version. Each runtime has its own form: docker-ID.scope, libpod-ID.scope,
// cri-containerd-ID.scope, crio-ID.scope, or just ID. Of nested containers it
// is the outer one, which this host knows.
//
// users means that users may create and name cgroups there: then the name
// proves nothing.
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

// byContainer is for processes that descend from no job. podman leaves a
// monitor with its environment behind. docker has to be asked; its own
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
	// A user who controls docker can do anything on this machine.
	key, ok = a.byToken(value, func(Holder) bool { return true })
	return key, ok, false
}
