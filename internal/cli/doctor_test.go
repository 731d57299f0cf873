package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"berth/internal/api"
	"berth/internal/cli/render"
	"berth/internal/cli/session"
	"berth/internal/machine/site"
	"berth/internal/queue/config"
	"berth/internal/tests/testkit"
)

func TestWhatTheDoctorSaysOfTheDaemon(t *testing.T) {
	away := &api.Unreachable{Socket: "/run/x", Err: errors.New("no such file")}
	for _, test := range []struct {
		name   string
		daemon api.Status
		err    error
		at     session.Target
		status string
		says   string
	}{
		{"it answers", api.Status{Version: "1.2", PID: 7, Counts: map[string]int{"running": 2}}, nil, session.Target{}, site.OK, "berth 1.2 (pid 7), private"},
		{"it says how it reads the cards", api.Status{Source: "NVML"}, nil, session.Target{}, site.OK, "GPU source: NVML"},
		{"it is shared", api.Status{Shared: true}, nil, session.Target{}, site.OK, "shared"},
		{"it starts nothing", api.Status{Blocked: "the cards cannot be read"}, nil, session.Target{}, site.Warn, "no job can start: the cards cannot be read"},
		{"a private one is not running yet", api.Status{}, away, session.Target{Private: true}, site.OK, "the next berth command that needs it starts it"},
		{"the machine's does not run", api.Status{}, away, session.Target{}, site.Fail, "no answer at /run/x"},
		{"it is in trouble", api.Status{}, errors.New("EOF"), session.Target{Socket: "/run/x"}, site.Fail, "/run/x: EOF"},
	} {
		f := daemonFinding(test.daemon, test.err, test.at)
		if f.Status != test.status || !strings.Contains(f.What, test.says) || f.Status != site.OK && f.Fix == "" {
			t.Errorf("%s: %+v", test.name, f)
		}
	}
}

// TestTheDoctorHearsTheDaemon: what a plain user could do by itself says
// nothing about the jobs of a daemon.
func TestTheDoctorHearsTheDaemon(t *testing.T) {
	for _, test := range []struct {
		name                string
		enforced            api.Enforced
		cgroup, controllers string
		isolation           string
	}{
		{"all of it", api.Enforced{Cgroup: "/sys/fs/cgroup/berth", CPUs: "v2", Mem: "v1", Missing: []string{"no freezer"}},
			"ok the daemon gives each job its own cgroup, below /sys/fs/cgroup/berth", "ok the daemon enforces the cpus and mem of jobs",
			"warn the daemon cannot keep a job from opening other GPUs than its own: no freezer"},
		{"not cpus", api.Enforced{Cgroup: "/c", Mem: "v2", Devices: true, Missing: []string{"no cpu controller"}},
			"ok the daemon gives each job its own cgroup, below /c", "warn the daemon counts the cpus of jobs but does not enforce them: no cpu controller",
			"ok the daemon lets each job open only its own GPUs"},
		{"nothing: the reasons are given once", api.Enforced{Missing: []string{"a", "b"}},
			"warn the daemon cannot give jobs their own cgroups and tracks them by session and ancestry: a; b", "warn the daemon counts the cpus and mem of jobs but does not enforce them",
			"warn the daemon cannot keep a job from opening other GPUs than its own"},
	} {
		findings := []site.Finding{{Name: "kernel", Status: site.OK, What: "6.18"}, {Name: "cgroup", Status: site.Warn, What: "mine", Fix: "mine"}, {Name: "controllers", Status: site.Fail, What: "mine", Fix: "mine"},
			{Name: "isolation", Status: site.Warn, What: "mine", Fix: "mine"}, {Name: "isolation", Status: site.OK, What: site.NoCards}}
		applyDaemon(findings, test.enforced)
		for i, want := range []string{"ok 6.18", test.cgroup, test.controllers, test.isolation, "ok " + site.NoCards} {
			f := findings[i]
			if got := f.Status + " " + f.What; got != want || (f.Fix == "") != (f.Status == site.OK) || f.Fix == "mine" {
				t.Errorf("%s: %q (%s), want %q", test.name, got, f.Fix, want)
			}
		}
	}
}

func TestTheDoctorHearsHowADaemonReadsTheCards(t *testing.T) {
	for _, test := range []struct{ name, source, what, want string }{
		{"it does as this process would", "NVML", "2 cards, read through NVML", "ok 2 cards, read through NVML"},
		{"it does without NVML", "nvidia-smi", "2 cards, read through NVML", "warn the daemon reads the GPUs through nvidia-smi, which is slower and cannot read MIG"},
		{"no GPUs", "nvidia-smi", site.NoCards, "ok " + site.NoCards},
	} {
		findings := []site.Finding{{Name: "nvml", Status: site.OK, What: test.what}, {Name: "kernel", Status: site.OK, What: "6.18"}}
		applySource(findings, test.source)
		if f := findings[0]; f.Status+" "+f.What != test.want || (f.Fix == "") != (f.Status == site.OK) || findings[1].Status != site.OK {
			t.Errorf("%s: %+v", test.name, findings)
		}
	}
}

func TestADoctorsReport(t *testing.T) {
	findings := []site.Finding{
		{Name: "kernel", Status: site.OK, What: "6.18"}, {Name: "controllers", Status: site.Warn, What: "none\x1b[2J", Fix: "delegate them"}, {Name: "disk", Status: site.Fail, What: "full", Fix: "make room"},
	}
	var out bytes.Buffer
	err := drawFindings(render.Screen{Out: &out}, findings)
	want := "ok    kernel       6.18\nwarn  controllers  none\ufffd[2J\n                   fix: delegate them\nfail  disk         full\n                   fix: make room\n1 ok, 1 to improve, 1 failing\n"
	var code session.ExitStatus
	if out.String() != want || !errors.As(err, &code) || code != 1 {
		t.Errorf("%v, it says\n%s", err, out.String())
	}
	out.Reset()
	none := []site.Finding{{Name: "driver", Status: site.Warn, What: "none", Fix: "install it"}, {Name: "nvml", Status: site.OK, What: site.NoCards}, {Name: "memory limits", Status: site.OK, What: site.NoCards}}
	want = "warn  driver  none\n              fix: install it\nok    the rest  no GPUs: nvml, memory limits\n2 ok, 1 to improve, 0 failing\n"
	if err := drawFindings(render.Screen{Out: &out}, none); err != nil || out.String() != want {
		t.Errorf("%v, without cards it says\n%s", err, out.String())
	}
	if err := drawFindings(render.Screen{Out: &out}, findings[:2]); err != nil {
		t.Errorf("a warning is a failure: %v", err)
	}
}

// TestTheDoctorOfARealCluster: what the doctor proposes for the config is what a
// real Slurm has.
func TestTheDoctorOfARealCluster(t *testing.T) {
	s := testkit.NewSlurm(t, testkit.SlurmSetup{Nodes: 2, GPUs: 4, CPUs: 4, Shards: 4, Types: []string{"a100", "nvidia_h100_80gb_hbm3"}})
	t.Setenv("SLURM_CONF", s.Conf)
	t.Setenv("SQUEUE_FORMAT", "%i") // must not matter
	e := clusterExam{config: config.Default(false)}
	report := e.all(t.Context())
	var found []string
	for _, f := range report.Findings {
		found = append(found, f.Name+" "+f.Status)
		if f.Status == site.Fail {
			t.Errorf("%+v", f)
		}
	}
	if got, want := strings.Join(found[:8], ", "), "slurm ok, slurmctld ok, slurmdbd warn, slurmrestd ok, squeue ok, nodes ok, gpus ok, shards warn"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if got, want := strings.Join(report.Config, "\n"), "shards = 4\n# a100 has 40G or 80G\ngpus = [\"a100=?\", \"nvidia_h100_80gb_hbm3=80G\"]"; got != want || len(report.Nodes) != 2 {
		t.Errorf("%s\n%+v", got, report.Nodes)
	}
	s.StopController(t)
	e = clusterExam{config: config.Default(false)}
	if report := e.all(t.Context()); len(report.Findings) < 2 || report.Findings[1].Status != site.Fail || !strings.Contains(report.Findings[1].What, "Unable to contact slurm controller") {
		t.Errorf("%+v", report.Findings)
	}
}
