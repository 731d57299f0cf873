package run

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"berth/internal/machine/keep"
	"berth/internal/tests/testkit"
)

func TestWhichContainerAProcessIsIn(t *testing.T) {
	t.Parallel()
	id, other := strings.Repeat("0123456789abcdef", 4), strings.Repeat("fedcba9876543210", 4)
	rows := []struct{ name, text, want string }{
		{"docker with systemd", "0::/system.slice/docker-" + id + ".scope\n", id},
		{"docker with cgroupfs", "0::/docker/" + id + "\n", id},
		{"docker on version 1", "9:memory:/docker/" + id + "\n1:name=systemd:/docker/" + id + "\n", id},
		{"rootless podman", "0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + id + ".scope/container\n", id},
		{"containerd of Kubernetes", "0::/kubepods.slice/kubepods-pod12_3.slice/cri-containerd-" + id + ".scope\n", id},
		{"cri-o", "0::/kubepods.slice/crio-" + id + ".scope\n", id},
		{"Kubernetes on version 1", "5:devices:/kubepods/besteffort/pod7b/" + id + "\n", id},
		{"one in another", "0::/docker/" + id + "/docker/" + other + "\n", id},
		{"a colon in the path", "0::/a:b/docker-" + id + ".scope\n", id},
		{"no container", "0::/user.slice/session-3.scope\n", ""},
		{"a short name", "0::/docker/" + id[1:] + "\n", ""},
		{"no hexadecimal", "0::/docker/" + strings.ToUpper(id) + "\n", ""},
		{"a job of berth's", "0::/berth-1-2/0123456789abcdef.cards/0123456789abcdef\n", ""},
		{"nothing", "", ""},
		{"no line of the kernel's", id, ""},
	}
	for _, row := range rows {
		got, users := containerIn(row.text)
		if got != row.want || users != (row.name == "rootless podman") {
			t.Errorf("%s: %q, %v", row.name, got, users)
		}
	}
}

// dockerFake is a docker that knows containers, and can be slow.
type dockerFake struct {
	socket string
	asked  atomic.Int32
	hang   chan struct{} // closed: it answers

	mu    sync.Mutex
	known map[string]any
}

func newDockerFake(t *testing.T, known map[string]any) *dockerFake {
	t.Helper()
	d := &dockerFake{socket: filepath.Join(t.TempDir(), "d"), hang: make(chan struct{}), known: known}
	listener, err := net.Listen("unix", d.socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: d}}
	server.Start()
	t.Cleanup(server.Close)
	return d
}

func (d *dockerFake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.asked.Add(1)
	select {
	case <-d.hang:
	case <-r.Context().Done():
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	id, _ := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/containers/"), "/json")
	config, ok := d.known[id]
	if !ok || r.Method != http.MethodGet {
		http.Error(w, `{"message":"No such container"}`, http.StatusNotFound)
		return
	}
	json.NewEncoder(w).Encode(map[string]any{"Id": id, "Config": config})
}

func (d *dockerFake) answers() *dockerFake { close(d.hang); return d }

// settled asks until there is an answer.
func settled(t *testing.T, a *Attribution, pid int) (key string, ok bool) {
	t.Helper()
	testkit.Eventually(t, "docker's answer", func() bool {
		var known bool
		key, ok, known = a.Owner(pid)
		return known
	})
	return key, ok
}

// calm waits until docker is asked for nothing any more.
func calm(t *testing.T, a *Attribution) {
	t.Helper()
	testkit.Eventually(t, "nobody waits for docker", func() bool {
		a.containers.mu.Lock()
		defer a.containers.mu.Unlock()
		return a.containers.asking == 0
	})
}

func containerID(digit string) string { return strings.Repeat(digit, idLength) }

func TestAContainerIsTheJobsWhoseTokenItHas(t *testing.T) {
	const token = "feed"
	rows := []struct {
		name   string
		config any
		want   string
	}{
		{"a label", map[string]any{"Labels": map[string]string{tokenLabel: "feed:1:2"}}, "1"},
		{"a variable", map[string]any{"Env": []string{"PATH=/bin", "BERTH_TOKEN=feed:1:1"}}, "1"},
		{"another job of the same supervisor", map[string]any{"Labels": map[string]string{tokenLabel: "feed:2:1"}}, ""},
		{"a longer token", map[string]any{"Labels": map[string]string{tokenLabel: "feedback:1:1"}}, ""},
		{"the job's number, which anybody knows", map[string]any{"Labels": map[string]string{tokenLabel: "1", "berth.job": "1"}, "Env": []string{"BERTH_JOB_ID=1"}}, ""},
		{"an empty label", map[string]any{"Labels": map[string]string{tokenLabel: ""}}, ""},
		{"no label", map[string]any{"Labels": nil}, ""},
		{"nonsense", "configuration", ""},
		{"none that docker knows", nil, ""},
	}
	f, known := newFakeProc(t), map[string]any{}
	for i, row := range rows {
		id := containerID(string("0123456789abcdef"[i]))
		if row.config != nil {
			known[id] = row.config
		}
		f.add(keep.Process{PID: 100 + i, Parent: 1, Session: 100 + i}, "0::/docker/"+id+"\n")
	}
	docker := newDockerFake(t, known).answers()
	w := f.world()
	w.docker = docker.socket
	a := newAttribution(w)
	a.Set([]Holder{{Key: "1", Token: token}, {Key: "empty"}})
	for i, row := range rows {
		if _, ok, known := a.Owner(100 + i); ok || known {
			t.Errorf("%s: there was an answer before docker gave one", row.name)
		}
		if key, ok := settled(t, a, 100+i); key != row.want || ok != (row.want != "") {
			t.Errorf("%s: it is %q's", row.name, key)
		}
	}
	// Nobody's containers are asked about again, but not all the time.
	asked := docker.asked.Load()
	f.clock.Add(int64(unownedFor))
	a.Owner(106)
	calm(t, a)
	if now := docker.asked.Load(); now != asked {
		t.Errorf("docker was asked %d times more", now-asked)
	}
	docker.mu.Lock()
	known[containerID("6")] = map[string]any{"Env": []string{"BERTH_TOKEN=feed:1:1"}}
	docker.mu.Unlock()
	f.clock.Add(int64(unclaimedFor))
	testkit.Eventually(t, "it is claimed", func() bool {
		_, ok, known := a.Owner(106)
		if !known {
			t.Fatal("a container that was nobody's became unknown")
		}
		f.clock.Add(int64(unownedFor))
		return ok
	})
	calm(t, a)
}

// Users make cgroups below their own part of the hierarchy, and could call one
// like another's container.
func TestACgroupThatAUserNamedIsNoContainerOfDockers(t *testing.T) {
	id := containerID("e")
	docker := newDockerFake(t, map[string]any{id: map[string]any{"Labels": map[string]string{tokenLabel: "feed:1:1"}}}).answers()
	f := newFakeProc(t)
	f.add(keep.Process{PID: 100, Parent: 1, Session: 100}, "0::/user.slice/user-1000.slice/user@1000.service/app.slice/docker-"+id+".scope\n")
	f.add(keep.Process{PID: 101, Parent: 1, Session: 101}, "0::/system.slice/docker-"+id+".scope\n")
	w := f.world()
	w.docker = docker.socket
	a := newAttribution(w)
	a.Set([]Holder{{Key: "1", Token: "feed"}})
	if key, ok := settled(t, a, 101); key != "1" || !ok {
		t.Errorf("docker's own is %q's", key)
	}
	if key, ok, known := a.Owner(100); ok || !known {
		t.Errorf("the user's is %q's, %v", key, known)
	}
	calm(t, a)
}

func TestADockerThatHangsHoldsNothingUp(t *testing.T) {
	f := newFakeProc(t)
	docker := newDockerFake(t, nil)
	const many = 3 * maxAsking
	for i := range many {
		id := containerID("0")[:idLength-2] + string("0123456789abcdef"[i/16]) + string("0123456789abcdef"[i%16])
		f.add(keep.Process{PID: 100 + i, Parent: 1, Session: 100 + i}, "0::/docker/"+id+"\n")
	}
	w := f.world()
	w.docker = docker.socket
	a := newAttribution(w)
	a.containers.client.Timeout = time.Hour // none is over while the owners are asked for
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 10 {
			for i := range many {
				if _, ok, known := a.Owner(100 + i); ok || known {
					t.Errorf("process %d: %v, %v", 100+i, ok, known)
				}
			}
		}
	}()
	select {
	case <-done:
	case <-time.After(testkit.Patience):
		t.Fatal("docker is waited for")
	}
	testkit.Eventually(t, "docker is asked", func() bool { return docker.asked.Load() > 0 })
	if asked := docker.asked.Load(); asked > maxAsking {
		t.Errorf("docker has %d requests at a time", asked)
	}
	// It is not asked for ever.
	given := newAttribution(w)
	if key, ok := settled(t, given, 100); ok {
		t.Errorf("it is %q's", key)
	}
	calm(t, given)
	docker.answers()
	calm(t, a)
}

func TestWithoutDockerAContainerIsExternalAtOnce(t *testing.T) {
	f := newFakeProc(t)
	f.add(keep.Process{PID: 100, Parent: 1, Session: 100}, "0::/docker/"+containerID("a")+"\n")
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, socket := range []string{"/no/such/docker.sock", file} {
		w := f.world()
		w.docker = socket
		a := newAttribution(w)
		if _, ok, known := a.Owner(100); ok || !known || len(a.containers.known) != 0 {
			t.Errorf("%s: %v, %v", socket, ok, known)
		}
	}
}

// inContainer starts a process in a cgroup of that name, as a container's, and
// returns it. monitor is the environment of its parent.
func inContainer(t *testing.T, name string, monitor ...string) keep.Process {
	t.Helper()
	parent := detectCgroup()
	if parent == "" {
		t.Skip("no cgroups here")
	}
	dir := filepath.Join(parent, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("no cgroup can be made here: %v", err)
	}
	work := t.TempDir()
	cmd := exec.Command("/bin/sh", "-c", `env -i setsid sh -c 'echo $$ > pid; exec sleep 1000' & wait`)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = work, append([]string{"PATH=" + os.Getenv("PATH")}, monitor...), &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := (&bench{t: t, work: work}).pidFrom("pid")
	t.Cleanup(func() {
		p.Signal(9)
		cmd.Process.Kill()
		cmd.Wait()
		testkit.Eventually(t, "the container's cgroup goes", func() bool { return keep.RemoveCgroup(parent) == nil })
	})
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(p.PID)), 0); err != nil {
		t.Skipf("no process can be moved here: %v", err)
	}
	return p
}

func TestARealProcessInADockersCgroup(t *testing.T) {
	id := containerID("d")
	p := inContainer(t, "docker-"+id+".scope")
	docker := newDockerFake(t, map[string]any{id: map[string]any{"Labels": map[string]string{tokenLabel: "feed:1:1"}}}).answers()
	a := NewAttribution()
	a.containers = newContainers(docker.socket, time.Now)
	a.world.inside = false
	a.Set([]Holder{{Key: "1", Token: "feed", Cgroup: "/sys/fs/cgroup/elsewhere", Session: 1 << 30, KeepPID: 1 << 30}})
	if _, ok, known := a.Owner(p.PID); ok || known {
		t.Errorf("there was an answer before docker gave one: %v, %v", ok, known)
	}
	if key, ok := settled(t, a, p.PID); key != "1" || !ok {
		t.Errorf("it is %q's", key)
	}
}

func TestAContainersMonitorHasItsJobsToken(t *testing.T) {
	p := inContainer(t, "libpod-"+containerID("b")+".scope", "BERTH_TOKEN=feed:1:1")
	a := NewAttribution()
	a.containers = newContainers("/no/such/docker.sock", time.Now)
	a.Set([]Holder{{Key: "1", Token: "feed"}})
	if key, ok := a.Local(p.PID); key != "1" || !ok {
		t.Errorf("it is %q's", key)
	}
	a.Set([]Holder{{Key: "1", Token: "fee"}, {Key: "2", Token: "feed"}})
	if key, ok := a.Local(p.PID); ok {
		t.Errorf("it is %q's, which has another token", key)
	}
}
