package site

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"berth/internal/tests/testkit"
)

const packaging = "../../../packaging"

var units = []string{"berth.service", "berth.socket", "user/berth.service", "user/berth.socket"}

// unitKeys are what the shipped units use, all known to systemd 245 and newer:
// a misspelt one would only be a line in its log.
var unitKeys = map[string][]string{
	"Unit": {"Description", "After", "Wants", "StartLimitIntervalSec", "ConditionUser"},
	"Service": {"Type", "ExecStart", "ExecReload", "Restart", "RestartSec", "TimeoutStartSec", "TimeoutStopSec",
		"WatchdogSec", "FileDescriptorStoreMax", "KillMode", "Delegate", "TasksMax", "RuntimeDirectory", "RuntimeDirectoryMode", "RuntimeDirectoryPreserve",
		"StateDirectory", "StateDirectoryMode", "ConfigurationDirectory", "OOMScoreAdjust", "LimitNOFILE", "UMask", "IgnoreSIGPIPE", "StandardInput"},
	"Socket":  {"ListenStream", "SocketMode", "DirectoryMode", "Backlog", "RemoveOnStop"},
	"Install": {"WantedBy", "Also"},
}

func TestUnitsHaveKnownKeys(t *testing.T) {
	for _, unit := range units {
		text := testkit.Read(t, filepath.Join(packaging, unit))
		section, count := "", 0
		for line := range strings.Lines(text) {
			line = strings.TrimSpace(line)
			if line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			if strings.HasPrefix(line, "[") {
				section = strings.Trim(line, "[]")
				continue
			}
			key, _, found := strings.Cut(line, "=")
			if !found || !slices.Contains(unitKeys[section], key) {
				t.Errorf("%s: [%s] %s", unit, section, line)
			}
			count++
		}
		var merged int
		for section := range unitKeys {
			merged += len(settings(text, section))
		}
		if merged != count {
			t.Errorf("%s: %d lines, %d settings: one is there twice", unit, count, merged)
		}
	}
}

func TestUnitsDoWhatTheyMust(t *testing.T) {
	service := map[string]string{
		"Type": "notify", "KillMode": "process", "Delegate": "yes", "Restart": "on-failure", "TasksMax": "infinity",
		"ExecStart": "/usr/local/bin/berth serve", "WatchdogSec": "60", "FileDescriptorStoreMax": "8", "IgnoreSIGPIPE": "no",
	}
	shared := map[string]string{
		"RuntimeDirectory": "berth", "RuntimeDirectoryMode": "0755", "RuntimeDirectoryPreserve": "yes", "StateDirectory": "berth", "StateDirectoryMode": "0711",
	}
	tests := []struct {
		unit, section string
		want          map[string]string
	}{
		{"berth.service", "Service", service},
		{"berth.service", "Service", shared},
		{"berth.service", "Service", map[string]string{"ExecReload": "/usr/local/bin/berth config reload"}},
		{"user/berth.service", "Service", map[string]string{"ExecReload": "/usr/local/bin/berth config reload --socket %h/.local/state/berth/berth.sock"}},
		{"berth.socket", "Socket", map[string]string{"ListenStream": SharedPlaces().Socket, "SocketMode": "0666", "DirectoryMode": "0755"}},
		{"user/berth.service", "Service", service},
		{"user/berth.socket", "Socket", map[string]string{"ListenStream": "%h/.local/state/berth/berth.sock", "SocketMode": "0600", "DirectoryMode": "0700"}},
	}
	for _, test := range tests {
		got := settings(testkit.Read(t, filepath.Join(packaging, test.unit)), test.section)
		for key, want := range test.want {
			if got[key] != want {
				t.Errorf("%s: %s=%s, want %s", test.unit, key, got[key], want)
			}
		}
	}
	if filepath.Dir(SharedPlaces().Socket) != "/run/berth" || SharedPlaces().StateDir != "/var/lib/berth" {
		t.Error("the units make other directories than the daemon uses")
	}
}

// Whatever a service is denied its jobs are denied, too.
func TestUnitsTakeNothingFromJobs(t *testing.T) {
	inherited := []string{"NoNewPrivileges", "Protect", "Private", "Capability", "SystemCall", "Restrict", "ReadOnly", "Inaccessible", "MemoryDeny", "LockPersonality",
		"DynamicUser", "User", "Group", "RemoveIPC", "MemoryMax", "CPUQuota", "Nice", "Environment", "PAMName", "RootDirectory"}
	for _, unit := range units {
		for key := range settings(testkit.Read(t, filepath.Join(packaging, unit)), "Service") {
			for _, prefix := range inherited {
				if strings.HasPrefix(key, prefix) {
					t.Errorf("%s: %s", unit, key)
				}
			}
		}
	}
}

func TestSystemdAcceptsTheUnits(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("there is no systemd-analyze to verify the units with")
	}
	for kind, dir := range map[string]string{"--system": packaging, "--user": filepath.Join(packaging, "user")} {
		// It insists on a program that is there.
		copies, verify := t.TempDir(), []string{"verify", kind, "--man=no"}
		for _, name := range []string{"berth.service", "berth.socket"} {
			text := strings.ReplaceAll(testkit.Read(t, filepath.Join(dir, name)), "/usr/local/bin/berth ", "/bin/true ")
			testkit.Write(t, filepath.Join(copies, name), text)
			verify = append(verify, filepath.Join(copies, name))
		}
		cmd := exec.Command(analyze, verify...)
		cmd.Env = append(os.Environ(), "SYSTEMD_LOG_LEVEL=warning", "XDG_RUNTIME_DIR="+t.TempDir())
		out, err := cmd.CombinedOutput()
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, copies) || strings.Contains(line, "berth.") {
				t.Errorf("%s: %s", kind, line)
			}
		}
		if err != nil {
			t.Logf("%s: %v: %s", kind, err, out)
		}
	}
}

func TestTheServiceIsInstalled(t *testing.T) {
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("there is no make")
	}
	dest := t.TempDir()
	cmd := exec.Command("make", "-C", "../../..", "-o", "install", "install-service", "DESTDIR="+dest, "PREFIX=/opt/berth")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, name := range []string{"system/berth.service", "system/berth.socket", "user/berth.service", "user/berth.socket"} {
		text := testkit.Read(t, filepath.Join(dest, "etc/systemd", name))
		if strings.HasSuffix(name, ".service") && settings(text, "Service")["ExecStart"] != "/opt/berth/bin/berth serve" {
			t.Errorf("%s:\n%s", name, text)
		}
		if strings.HasSuffix(name, ".service") && !strings.Contains(text, "ExecReload=/opt/berth/bin/berth config ") {
			t.Errorf("a reload of %s does not report mistakes:\n%s", name, text)
		}
	}
	// A commented config is installed once, and an administrator's own is kept.
	config := filepath.Join(dest, "etc/berth/config.toml")
	if testkit.Read(t, config) != testkit.Read(t, "../../../packaging/config.toml") {
		t.Error("the config is not the example")
	}
	if info, err := os.Stat(config); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("the config has mode %v: %v", info.Mode(), err)
	}
	testkit.Write(t, config, "# mine", 0o644)
	cmd = exec.Command("make", "-C", "../../..", "-o", "install", "install-service", "DESTDIR="+dest, "PREFIX=/opt/berth")
	if out, err := cmd.CombinedOutput(); err != nil || testkit.Read(t, config) != "# mine" || !strings.Contains(string(out), "kept /etc/berth/config.toml") {
		t.Errorf("installed again: %v: %s", err, out)
	}
}
