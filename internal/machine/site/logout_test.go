package site

import (
	"os"
	"strings"
	"testing"
)

func TestEndsAtLogout(t *testing.T) {
	const yes = "[Login]\nKillUserProcesses=yes\n"
	tests := []struct {
		name   string
		change func(*fake)
		want   string // in the explanation; "": jobs go on
	}{
		{"logind is told to", func(f *fake) { f.file("/etc/systemd/logind.conf", yes) }, "KillUserProcesses"},
		{"logind is told to, further down", func(f *fake) {
			f.file("/etc/systemd/logind.conf", "[Login]\nKillUserProcesses=no\n").file("/etc/systemd/logind.conf.d/lab.conf", yes)
		}, "KillUserProcesses"},
		{"logind is told not to", func(f *fake) { f.file("/etc/systemd/logind.conf", "[Login]\nKillUserProcesses=no\n") }, ""},
		{"logind was built to", func(f *fake) { f.file("/etc/systemd/logind.conf", "[Login]\n#KillUserProcesses=yes\n") }, "KillUserProcesses"},
		{"logind was built not to", func(f *fake) { f.file("/etc/systemd/logind.conf", "[Login]\n#KillUserProcesses=no\n") }, ""},
		{"logind says so itself", func(f *fake) { f.says("busctl", "b true\n") }, "KillUserProcesses"},
		{"logind says otherwise than its file", func(f *fake) { f.says("busctl", "b false\n").file("/etc/systemd/logind.conf", yes) }, ""},
		{"the user lingers", func(f *fake) { f.file("/etc/systemd/logind.conf", yes).file("/var/lib/systemd/linger/ann", "") }, ""},
		{"the user lingers, logind says", func(f *fake) {
			f.file("/etc/systemd/logind.conf", yes).says("loginctl show-user 1000 --property=Linger --value", "yes\n")
		}, ""},
		{"the user is excepted", func(f *fake) { f.file("/etc/systemd/logind.conf", yes+"KillExcludeUsers=bob ann\n") }, ""},
		{"only others are meant", func(f *fake) { f.file("/etc/systemd/logind.conf", yes+"KillOnlyUsers=bob\n") }, ""},
		{"this daemon is the user's systemd's", func(f *fake) {
			f.file("/proc/4711/cgroup", "0::/user.slice/user-1000.slice/user@1000.service/app.slice/berth.service\n")
		}, "systemd instance ends at logout"},
		{"systemd is not there", func(f *fake) {
			f.file("/etc/systemd/logind.conf", yes)
			os.RemoveAll(f.path("/run/systemd"))
		}, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := withSystemd(t)
			f.uid = 1000
			f.file("/proc/4711/cgroup", "0::/user.slice/user-1000.slice/session-3.scope\n")
			test.change(f)
			ends, why := endsAtLogout(t.Context(), f.machine, 1000)
			if ends != (test.want != "") || !strings.Contains(why, test.want) || ends != strings.Contains(why, "enable-linger") {
				t.Errorf("%v, %q", ends, why)
			}
		})
	}
}

func TestUserService(t *testing.T) {
	tests := []struct {
		name   string
		change func(*fake)
		env    map[string]string
		want   bool
	}{
		{"nothing is enabled", func(*fake) {}, nil, false},
		{"the service", func(f *fake) {
			f.file("/home/ann/.config/systemd/user/default.target.wants/berth.service", "")
		}, nil, true},
		{"its socket", func(f *fake) {
			f.file("/home/ann/.config/systemd/user/sockets.target.wants/berth.socket", "")
		}, nil, true},
		{"for all users", func(f *fake) { f.file("/etc/systemd/user/default.target.wants/berth.service", "") }, nil, true},
		{"it is there and not enabled", func(f *fake) { f.file("/home/ann/.config/systemd/user/berth.service", "[Service]\n") }, nil, false},
		{"the state is elsewhere", func(f *fake) {
			f.file("/etc/systemd/user/default.target.wants/berth.service", "")
		}, map[string]string{"XDG_STATE_HOME": "/scratch/ann"}, false},
		{"systemd does not run", func(f *fake) {
			f.file("/etc/systemd/user/default.target.wants/berth.service", "")
			os.RemoveAll(f.path("/run/systemd"))
		}, nil, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := withSystemd(t)
			test.change(f)
			got := userService(f.machine, func(name string) string {
				if name == "HOME" {
					return "/home/ann"
				}
				return test.env[name]
			})
			if got != test.want {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

func TestTheUserServiceIsStartedAndRecognised(t *testing.T) {
	f := withSystemd(t)
	f.uid = 1000
	f.says("systemctl --user start --no-block berth.service", "")
	if err := tellUserService(t.Context(), f.machine, "start", "--no-block"); err != nil {
		t.Error(err)
	}
	f.says("systemctl --user restart berth.service", "")
	if err := tellUserService(t.Context(), f.machine, "restart"); err != nil {
		t.Error(err)
	}
	f.exits("systemctl --user start --no-block berth.service", 5, "Unit berth.service not found.\n")
	if err := tellUserService(t.Context(), f.machine, "start", "--no-block"); err == nil || !strings.Contains(err.Error(), "Unit berth.service not found.") {
		t.Errorf("it says %v", err)
	}
	for cgroup, want := range map[string]bool{
		"/user.slice/user-1000.slice/user@1000.service/app.slice/berth.service": true,
		"/user.slice/user-1000.slice/user@1000.service/app.slice/other.service": false,
		"/user.slice/user-1000.slice/session-3.scope":                           false,
		"/system.slice/berth.service":                                           false,
	} {
		f.file("/proc/4711/cgroup", "0::"+cgroup+"\n")
		if isUserService(f.machine, 4711) != want {
			t.Errorf("%s: %v", cgroup, !want)
		}
	}
}

func TestSystemService(t *testing.T) {
	tests := []struct {
		name   string
		change func(*fake)
		want   bool
	}{
		{"nothing is installed", func(*fake) {}, false},
		{"a service", func(f *fake) { f.file("/etc/systemd/system/berth.service", "[Service]\n") }, true},
		{"a socket of a package", func(f *fake) { f.file("/usr/lib/systemd/system/berth.socket", "[Socket]\n") }, true},
		{"a user unit does not count", func(f *fake) { f.file("/usr/lib/systemd/user/berth.service", "[Service]\n") }, false},
		{"masked by the administrator", func(f *fake) {
			f.file("/usr/lib/systemd/system/berth.service", "[Service]\n").file("/etc/systemd/system/x", "")
			if err := os.Symlink("/dev/null", f.path("/etc/systemd/system/berth.service")); err != nil {
				f.t.Fatal(err)
			}
		}, false},
	}
	for _, test := range tests {
		f := newFake(t)
		test.change(f)
		if got := systemService(f.machine); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}
