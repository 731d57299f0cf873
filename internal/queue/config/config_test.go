package config

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"berth/internal/job"
	"berth/internal/machine/site"
	"berth/internal/queue"
	"berth/internal/queue/send"
	"berth/internal/sched"
	"berth/internal/slurm"
)

func TestConfigSaysWhatPeopleType(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		sentence string
		file     string
		want     func(*Config)
	}{
		{"an empty file is the defaults", "", func(*Config) {}},
		{"sizes with and without a unit", "[scheduling]\nmargin = \"1.5G\"\nidle_threshold = 300", func(c *Config) {
			c.Rules.MarginMiB, c.Rules.IdleThresholdMiB = 1536, 300
		}},
		{"nothing is a size too", "[scheduling]\nmargin = 0\nidle_threshold = \"0M\"", func(c *Config) {
			c.Rules.MarginMiB, c.Rules.IdleThresholdMiB = 0, 0
		}},
		{"times in every form", "[scheduling]\nhalf_life = \"2d\"\npoll = 0.5\n[limits]\ninteractive_time = \"1:30:00\"\n[service]\nidle_exit = 90", func(c *Config) {
			c.HalfLife, c.Poll, c.InteractiveTime, c.IdleExit = 48*time.Hour, 500*time.Millisecond, 90*time.Minute, 90*time.Second
		}},
		{"idle jobs are told of and ended", "[idle]\nreport_after = \"2h\"\ncancel_after = \"12h\"", func(c *Config) {
			c.IdleReport, c.IdleCancel = 2*time.Hour, 12*time.Hour
		}},
		{"jobs beyond their declaration are ended", "[overuse]\ncancel_after = \"10m\"\ncancel_above = 2", func(c *Config) { c.OveruseCancel, c.OveruseAbove = 10*time.Minute, 2 }},
		{"idle jobs are nobody's business", "[idle]\nreport_after = 0", func(c *Config) { c.IdleReport, c.IdleCancel = 0, 0 }},
		{"no time at all", "[retention]\nhistory = 0\nlogs = \"0d\"", func(c *Config) { c.History, c.Logs = 0, 0 }},
		{"cards as a range", "[scheduling]\ngpus = \"5,0-2\"", func(c *Config) { c.GPUs = []int{0, 1, 2, 5} }},
		{"cards as a list", "[scheduling]\ngpus = [3, 1]", func(c *Config) { c.GPUs = []int{1, 3} }},
		{"one card", "[scheduling]\ngpus = 2", func(c *Config) { c.GPUs = []int{2} }},
		{"words and switches", "[scheduling]\npolicy = \"fifo\"\nplacement = \"spread\"\nfair_share = false\nexclusive = true", func(c *Config) {
			c.Rules.Policy, c.Rules.Placement, c.Rules.Fair, c.Rules.Exclusive = sched.FIFO, sched.Spread, false, true
		}},
		{"fair, wherever what it stands for is said too", "[scheduling]\nfair_share = true\npolicy = \"fair\"", func(c *Config) {
			c.Rules.Policy, c.Rules.Fair = sched.Backfill, true
		}},
		{"another order, never bounded, and nobody set aside", "[scheduling]\npolicy = \"las\"\nmax_bypass = \"never\"\npreempt = \"never\"", func(c *Config) {
			c.Rules.Policy, c.Rules.MaxBypass, c.Preempt = sched.LAS, 0, queue.PreemptNever
		}},
		{"a bound", "[scheduling]\nmax_bypass = \"4h\"\npreempt = \"park\"\nslice = false", func(c *Config) {
			c.Rules.MaxBypass, c.Preempt, c.Rules.Slice = 4*time.Hour, queue.PreemptPark, false
		}},
		{"no bound", "[scheduling]\nmax_bypass = 0", func(c *Config) { c.Rules.MaxBypass = 0 }},
		{"a whole number where a fraction may be", "[limits]\ngpus = 4", func(c *Config) { c.Limits.Default.GPUs = Portion{Amount: 4} }},
		{"bytes", "[limits]\nenvironment = \"2M\"\nlog_size = \"1G\"", func(c *Config) { c.MaxEnviron, c.MaxLog = 2<<20, 1<<30 }},
		{"nobody but root administers", "[access]\nadmin_group = \"\"", func(c *Config) { c.AdminGroup = "" }},
		{"dotted keys", "access.show_commands = \"all\"\nlimits.users.ann.gpus = 0.5", func(c *Config) {
			c.ShowCommands = ShowAllCommands
			c.Limits.Users = map[string]UserLimit{"ann": {Jobs: 64, GPUs: Portion{Amount: 0.5}, CPUs: Portion{Percent: 50}, Memory: Portion{Percent: 50}}}
		}},
		{"what a user's table leaves out is as for all, wherever it stands",
			"[limits.users.ann]\ngpus = 8\n[limits.users.\"j.doe\"]\nqueued_jobs = 0\n[limits]\ngpus = 2\nrunning_jobs = 5\nqueued_jobs = 7", func(c *Config) {
				c.Limits.Default.Jobs, c.Limits.Default.GPUs = 5, Portion{Amount: 2}
				ann := c.Limits.Default
				ann.GPUs = Portion{Amount: 8}
				c.Limits.Users = map[string]UserLimit{"ann": ann}
				c.QueuedJobs, c.QueuedJobsOf = 7, map[string]int{"j.doe": 0}
			}},
		{"CPUs and memory, of all and of one", "[limits]\ncpus = 12\nmemory_total = \"25%\"\n[limits.users.ann]\ncpus = \"75%\"\n[limits.users.bob]\nmemory_total = \"64G\"", func(c *Config) {
			c.Limits.Default.CPUs, c.Limits.Default.Memory = Portion{Amount: 12}, Portion{Percent: 25}
			ann, bob := c.Limits.Default, c.Limits.Default
			ann.CPUs, bob.Memory = Portion{Percent: 75}, Portion{Amount: 64 << 10}
			c.Limits.Users = map[string]UserLimit{"ann": ann, "bob": bob}
		}},
		{"who is told, and how mail is sent", "[notify]\nadmin = [\"mailto:a@b.c\", \"ntfy:box\"]\nsmtp = \"mail.example.org:465\"\nsmtp_tls = \"tls\"\nmail_from = \"gpus@b.c\"\nsendmail = \"/bin/mail\"", func(c *Config) {
			c.NotifyAdmin = []string{"mailto:a@b.c", "ntfy:https://ntfy.sh/box"}
			c.Mail = send.Mail{Server: "mail.example.org:465", TLS: send.FullTLS, From: "gpus@b.c", Sendmail: "/bin/mail"}
		}},
		{"a cluster", "engine = \"slurm\"\n[slurm]\noptions = \"-A lab --qos=long\"\ndirectory = \"~/work/berth\"\nprogram = \"/opt/berth\"\ngpus = [\"a100=80G\", \"v100:volta=16G\", \":ampere=40G\"]\nshards = 4", func(c *Config) {
			c.Engine = job.ToSlurm
			c.Slurm.Slurm = slurm.Cluster{Options: []string{"--account=lab", "--qos=long"}, Shards: 4,
				Kinds: []slurm.Kind{{Type: "a100", MiB: 80 << 10}, {Type: "v100", MiB: 16 << 10, Feature: "volta"}, {MiB: 40 << 10, Feature: "ampere"}}}
			c.Slurm.Directory, c.Slurm.Program = "~/work/berth", "/opt/berth"
		}},
		{"this machine by name", "engine = \"local\"", func(c *Config) { c.Engine = job.ToLocal }},
		{"the network with TLS", "[http]\nlisten = \"0.0.0.0:443\"\ntls_cert = \"/a.crt\"\ntls_key = \"/a.key\"\nhosts = [\"gpu1.example.org\"]", func(c *Config) {
			c.Listen, c.TLSCert, c.TLSKey, c.Hosts = "0.0.0.0:443", "/a.crt", "/a.key", []string{"gpu1.example.org"}
		}},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			want := Default(true)
			c.want(&want)
			got, err := Parse("config.toml", []byte(c.file), Default(true))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestAMistakeInATargetKeepsItsSecret: the log and config check show it.
func TestAMistakeInATargetKeepsItsSecret(t *testing.T) {
	t.Parallel()
	for file, says := range map[string]string{
		`admin = ["mailto:a@b.c", "slak:https://h/s3cret"]`: "did you mean slack?",
		`admin = ["webhook:h/s3cret"]`:                      "expected a URL",
		`admin = "webhook:https://h/x"`:                     "expected a list",
		`admin = [7]`:                                       "expected a list",
		`smtp = "mail.example.org"`:                         "expected HOST:PORT",
		`smtp_tls = "ssl"`:                                  "starttls",
		`mail_from = "Berth"`:                               "expected an address",
		`sendmail = "mail"`:                                 "expected an absolute path",
		`smtp_user = "u"`:                                   "notify.smtp is missing",
		"smtp = \"m:1\"\nsmtp_user = \"u\"":                 "smtp_password_file is missing",
		"smtp_password_file = \"/p\"":                       "smtp_user is missing",
		"smtp_user = \"a\\nb\"":                             "expected a user name",
		"smtp = \"m:1\"\nsmtp_user = \"u\"\nsmtp_password_file = \"/p\"\nsmtp_tls = \"none\"": "only over TLS",
	} {
		_, err := Parse("config.toml", []byte("[notify]\n"+file), Default(true))
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v; expected %q", file, err, says)
		}
	}
}

func TestMistakesAboutACluster(t *testing.T) {
	t.Parallel()
	for file, says := range map[string]string{
		`engine = "moon"`:                     `engine: expected "local" or "slurm", found "moon"`,
		`engin = "slurm"`:                     "did you mean engine, above the first section?",
		"[slurm]\nengine = \"slurm\"":         "slurm.engine: unknown key; did you mean engine, above the first section?",
		"[engine]\nname = \"slurm\"":          `engine: expected "local" or "slurm", found a table`,
		"[slurm]\noptions = \"--time=10\"":    "slurm.options: berth sets --time itself (use --time of berth submit)",
		"[slurm]\noptions = [\"-A lab\"]":     "slurm.options: expected options of sbatch",
		"[slurm]\noptions = \"train.sh\"":     "slurm.options: expected an option",
		"[slurm]\ndirectory = \"berth\"":      "slurm.directory: expected an absolute path, or one that begins with ~/",
		"[slurm]\ndirectory = \"~ann/berth\"": "slurm.directory: expected an absolute path",
		"[slurm]\ndirectory = \"~/../x\"":     "slurm.directory: expected an absolute path",
		"[slurm]\nprogram = \"berth\"":        "slurm.program: expected an absolute path",
		"[slurm]\ngpus = \"a100=80G\"":        "slurm.gpus: expected a list",
		"[slurm]\ngpus = [\"a100\"]":          "slurm.gpus: expected TYPE=SIZE",
		"[slurm]\ngpus = [\"=80G\"]":          "slurm.gpus: expected TYPE=SIZE",
		"[slurm]\ngpus = [\"a100:=80G\"]":     "slurm.gpus: expected TYPE=SIZE",
		"[slurm]\ngpus = [\"a,b=80G\"]":       "slurm.gpus: expected TYPE=SIZE",
		"[slurm]\ngpus = [7]":                 "slurm.gpus: expected TYPE=SIZE",
		"[slurm]\nshards = -1":                "slurm.shards: expected a whole number from 0 to 1024",
	} {
		if _, err := Parse("config.toml", []byte(file), Default(true)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; expected %q", file, err, says)
		}
	}
}

func TestConfigMistakesAreAllNamed(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile("testdata/config_mistakes.toml")
	if err != nil {
		t.Fatal(err)
	}
	_, err = Parse("config.toml", file, Default(true))
	if err == nil {
		t.Fatal("a file of mistakes was taken")
	}
	// Each mistake stands under a comment that says what is answered.
	var want []string
	for i, line := range strings.Split(string(file), "\n") {
		if text, ok := strings.CutPrefix(line, "#! "); ok {
			want = append(want, fmt.Sprintf("config.toml:%d: %s", i+2, text))
		}
	}
	if diff := cmp.Diff(strings.Join(want, "\n"), err.Error()); diff != "" {
		t.Error(diff)
	}
}

func TestConfigThatIsNoTOMLNamesTheLine(t *testing.T) {
	t.Parallel()
	_, err := Parse("config.toml", []byte("[scheduling]\npolicy = fifo\n"), Default(false))
	if err == nil || !strings.HasPrefix(err.Error(), "config.toml:2: ") {
		t.Errorf("got %v", err)
	}
	_, err = Parse("config.toml", []byte("[scheduling]\n[access]\n[scheduling]\n"), Default(false))
	if err == nil || !strings.HasPrefix(err.Error(), "config.toml:3: ") {
		t.Errorf("got %v", err)
	}
}

func TestAFileOfNothingButMistakesIsAnsweredSoon(t *testing.T) {
	t.Parallel()
	var file strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&file, "[limits.users.u%d]\ngpuz = %d\n", i, i)
	}
	_, err := Parse("config.toml", []byte(file.String()), Default(true))
	if err == nil || !strings.Contains(err.Error(), "and 19980 more") {
		t.Errorf("got %v", err)
	}
}

func TestListenStaysOnThisMachineWithoutTLS(t *testing.T) {
	t.Parallel()
	for listen, want := range map[string][2]bool{ // without TLS, with it
		"127.0.0.1:7878":   {true, true},
		"127.8.0.1:0":      {true, true},
		"localhost:80":     {true, true},
		"[::1]:80":         {true, true},
		":80":              {false, true},
		"0.0.0.0:80":       {false, true},
		"[::]:80":          {false, true},
		"192.168.1.4:80":   {false, true},
		"[2001:db8::1]:80": {false, true},
		"::1:80":           {false, false},
		"[127.0.0.1]:80":   {false, false},
		"127.0.0.1":        {false, false},
		"127.0.0.1:":       {false, false},
		"127.0.0.1:65536":  {false, false},
		"127.0.0.1:http":   {false, false},
		"example.org:80":   {false, false},
		"localhost.evil:1": {false, false},
	} {
		for i, encrypted := range []bool{false, true} {
			if err := checkListen(listen, allowedListen, encrypted, ""); (err == nil) != want[i] {
				t.Errorf("listen %q, TLS %v: %v", listen, encrypted, err)
			}
		}
	}
}

func TestMetricsStayOnThisMachine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ listen, metrics, want string }{
		{"", "127.0.0.1:9778", ""},
		{"", "localhost:0", ""},
		{"", "[::1]:9778", ""},
		{"127.0.0.1:0", "127.0.0.1:0", ""},
		{"127.0.0.1:7878", "127.0.0.1:7878", "http.listen has this address already"},
		{"", "0.0.0.0:9778", "at any other address http.listen serves metrics, with a token"},
		{"", ":9778", "at any other address http.listen serves metrics, with a token"},
		{"", "9778", "expected a loopback address and a port"},
		{"", "gpu1:9778", "expected a loopback address and a port"},
	} {
		// TLS is for the other address, and changes nothing here.
		cfg := Config{Listen: c.listen, MetricsListen: c.metrics, TLSCert: "/a", TLSKey: "/b"}
		err := cfg.Check()
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "metrics.listen: ")) {
			t.Errorf("http.listen %q, metrics.listen %q: %v, want %q", c.listen, c.metrics, err, c.want)
		}
	}
}

func TestAProxyNeedsAPathAndAName(t *testing.T) {
	t.Parallel()
	hosts := []string{"gpu1.example.org"}
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{Listen: "unix:/run/berth/http.sock", Hosts: hosts}, ""},
		{Config{Listen: "unix:http.sock", Hosts: hosts}, "http.listen: expected"},
		{Config{Listen: "unix:", Hosts: hosts}, "http.listen: expected"},
		{Config{Listen: "unix:/run/berth/http.sock"}, "http.hosts: expected the name"},
		{Config{Listen: "unix:/run/berth/http.sock", Hosts: hosts, TLSCert: "/a", TLSKey: "/b"}, "http.tls_cert: the proxy"},
	} {
		err := c.cfg.Check()
		if (err == nil) != (c.want == "") || err != nil && !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.cfg.Listen, err, c.want)
		}
	}
}

func TestTLSNeedsBothFiles(t *testing.T) {
	t.Parallel()
	for _, c := range []Config{{TLSCert: "/a"}, {TLSKey: "/a"}} {
		if err := c.Check(); err == nil {
			t.Errorf("%+v was taken", c)
		}
	}
}

func TestEveryPartOfTheConfigIsSeenToChange(t *testing.T) {
	t.Parallel()
	fields := reflect.TypeFor[Config]()
	for i := range fields.NumField() {
		old, changed := Default(true), Default(true)
		if fields.Field(i).Name == "Rules" || fields.Field(i).Name == "Limits" {
			continue // below, part by part
		}
		alter(t, reflect.ValueOf(&changed).Elem().Field(i))
		expectOneChange(t, fields.Field(i).Name, changed, old)
	}
	rules := reflect.TypeFor[sched.Rules]()
	for i := range rules.NumField() {
		old, changed := Default(true), Default(true)
		alter(t, reflect.ValueOf(&changed.Rules).Elem().Field(i))
		expectOneChange(t, "Rules."+rules.Field(i).Name, changed, old)
	}
	old, changed := Default(true), Default(true)
	changed.Limits.Default.GPUs = Portion{Amount: 3}
	expectOneChange(t, "Limits.Default.GPUs", changed, old)
	changed = Default(true)
	changed.Limits.Users = map[string]UserLimit{"ann": {Jobs: 1}}
	expectOneChange(t, "Limits.Users", changed, old)
	if live, restart := old.Changed(Default(true)); live != nil || restart != nil {
		t.Errorf("nothing changed, but %v %v", live, restart)
	}
}

// alter gives a part another value.
func alter(t *testing.T, part reflect.Value) {
	switch part.Kind() {
	case reflect.Int, reflect.Int64:
		part.SetInt(part.Int() + 1)
	case reflect.Float64:
		part.SetFloat(part.Float() + 1)
	case reflect.String:
		part.SetString(part.String() + "x")
	case reflect.Bool:
		part.SetBool(!part.Bool())
	case reflect.Slice:
		part.Set(reflect.MakeSlice(part.Type(), 1, 1))
	case reflect.Map:
		part.Set(reflect.MakeMap(part.Type()))
		part.SetMapIndex(reflect.ValueOf("ann"), reflect.ValueOf(7))
	case reflect.Struct:
		alter(t, part.Field(0))
	default:
		t.Fatalf("a part of kind %s", part.Kind())
	}
}

func expectOneChange(t *testing.T, part string, changed, old Config) {
	t.Helper()
	live, restart := changed.Changed(old)
	if len(live)+len(restart) != 1 {
		t.Errorf("%s changed, and was told as %v and %v", part, live, restart)
	}
}

func TestWhatARunningDaemonCannotTakeUpIsNamed(t *testing.T) {
	t.Parallel()
	old, changed := Default(true), Default(true)
	changed.GPUs, changed.Listen, changed.History = []int{0}, "127.0.0.1:1", time.Hour
	live, restart := changed.Changed(old)
	if diff := cmp.Diff([]string{"retention.history"}, live); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"scheduling.gpus", "http.listen"}, restart); diff != "" {
		t.Error(diff)
	}
}

func TestQueuedJobsOfAUser(t *testing.T) {
	t.Parallel()
	c := Config{QueuedJobs: 5, QueuedJobsOf: map[string]int{"ann": 9, "bob": 0}}
	for user, want := range map[string]int{"ann": 9, "bob": 0, "eve": 5} {
		if got := c.QueuedJobsFor(user); got != want {
			t.Errorf("%s may queue %d, want %d", user, got, want)
		}
	}
}

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAConfigThatIsMissing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "none", "config.toml")
	got, err := Load(path, false, false)
	if diff := cmp.Diff(Default(false), got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if _, err := Load(path, false, true); err == nil {
		t.Error("a file that had to exist was not missed")
	}
	if _, err := Load(path, true, false); err != nil {
		t.Errorf("a shared daemon without a config: %v", err)
	}
}

func TestASharedDaemonBelievesOnlyTrustedFiles(t *testing.T) {
	t.Parallel()
	path := writeConfig(t, "[scheduling]\npolicy = \"fifo\"\n")
	asked := ""
	_, err := load(path, true, false, func(p string) error { asked = p; return fmt.Errorf("%s belongs to eve", p) })
	if err == nil || !strings.Contains(err.Error(), "belongs to eve") || asked != path {
		t.Errorf("asked about %q, got %v", asked, err)
	}
	if _, err := Load(path, false, true); err != nil {
		t.Errorf("a private daemon and its user's own file: %v", err)
	}
	if os.Getuid() != 0 {
		t.Skip("needs root: what root's own file looks like")
	}
	if got, err := Load(path, true, true); err != nil || got.Rules.Policy != sched.FIFO {
		t.Errorf("root's own file: %v", err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path, true, true); err == nil {
		t.Error("a file that anybody may write to was believed")
	}
}

func TestWhatIsNoConfigFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := Load(dir, false, true); err == nil {
		t.Error("a directory was read")
	}
	if _, err := Load("/dev/zero", false, true); err == nil {
		t.Error("a device was read")
	}
	big := writeConfig(t, strings.Repeat("# nothing\n", MaxBytes/10+1))
	if _, err := Load(big, false, true); err == nil || !strings.Contains(err.Error(), "larger") {
		t.Errorf("a huge file: %v", err)
	}
}

func TestTheExampleHasEveryKeyAndItsDefault(t *testing.T) {
	t.Parallel()
	example, err := os.ReadFile("../../../packaging/config.toml")
	if err != nil {
		t.Fatal(err)
	}
	want := Default(true)
	got, err := Parse("as shipped", example, Default(true))
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	commented := regexp.MustCompile(`(?m)^#(\[|[a-z_]+ = )`)
	used := commented.ReplaceAllString(string(example), "$1")
	if got, err = Parse("with every key in use", []byte(used), Config{}); err != nil {
		t.Fatal(err)
	}
	want.GPUs = []int{0, 1, 2, 3, 5}
	want.Limits.Users, want.QueuedJobsOf = map[string]UserLimit{"ann": {Jobs: 20, GPUs: Portion{Amount: 4}, MostGPU: Portion{Amount: 6}, CPUs: Portion{Amount: 16}, Memory: Portion{Amount: 128 << 10}}}, map[string]int{"ann": 500}
	want.Listen, want.TLSCert, want.TLSKey, want.Hosts = "0.0.0.0:7878", "/etc/berth/tls.crt", "/etc/berth/tls.key", []string{"gpu1.example.org"}
	want.MetricsListen = "127.0.0.1:9778"
	want.NotifyAdmin, want.Mail.Server, want.Mail.From = []string{"mailto:admin@example.org"}, "mail.example.org:587", "berth@example.org"
	want.Slurm.Slurm = slurm.Cluster{Options: []string{"--account=lab"}, Kinds: []slurm.Kind{{Type: "a100", MiB: 80 << 10}, {Type: "v100", MiB: 16 << 10}}}
	want.Slurm.Program = "/opt/berth/bin/berth"
	want.Mail.User, want.MailPassword = "berth", "/etc/berth/smtp-password"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, key := range knownKeys {
		if !regexp.MustCompile(`(?m)^#` + key.key + ` = `).Match(example) {
			t.Errorf("%s is not in the example", key.name())
		}
	}
}

func TestThePageHasEveryKey(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/reference/config.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, section := range sections() {
		_, text, found := strings.Cut(string(page), "\n### ["+section+"]\n")
		if !found {
			t.Errorf("the page has no section [%s]", section)
			continue
		}
		text, _, _ = strings.Cut(text, "\n#")
		rows := strings.Split(text, "\n")
		for _, key := range keysOf(section) {
			i := slices.IndexFunc(rows, func(row string) bool {
				first, _, _ := strings.Cut(strings.TrimPrefix(row, "|"), "|")
				return strings.Contains(first, "`"+key.key+"`")
			})
			if i < 0 {
				t.Errorf("%s is not on the page", key.name())
			} else if strings.HasSuffix(rows[i], "| restart |") != key.restart {
				t.Errorf("%s: the page and the daemon disagree about a restart", key.name())
			}
		}
		for _, row := range rows {
			first, _, _ := strings.Cut(strings.TrimPrefix(row, "|"), "|")
			for _, listed := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(first, -1) {
				if strings.HasPrefix(row, "|") && !slices.ContainsFunc(keysOf(section), func(k knownKey) bool { return k.key == listed[1] }) {
					t.Errorf("the page lists %s.%s, which does not exist", section, listed[1])
				}
			}
		}
	}
}

func FuzzConfig(f *testing.F) {
	for _, path := range []string{"../../../packaging/config.toml", "testdata/config_mistakes.toml"} {
		seed, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(seed))
	}
	f.Add("limits.users.ann = {gpus = 2}\nscheduling.gpus = [[1]]")
	f.Add("[[limits.users]]\n[http]\nhosts = [1979-05-27]")
	f.Fuzz(func(t *testing.T, file string) {
		c, err := Parse("config.toml", []byte(file), Default(true))
		if err != nil {
			return
		}
		if err := c.Check(); err != nil {
			t.Errorf("taken, but %v", err)
		}
		if c.Poll < shortestPoll || c.MaxEnviron < 1<<20 || c.HistoryJobs < 1 || c.MaxLog < 0 || !(c.Tolerance >= 0) {
			t.Errorf("taken out of bounds: %+v", c)
		}
	})
}

func TestAMistakenBoundIsToldHowToHaveNone(t *testing.T) {
	t.Parallel()
	_, err := Parse("config.toml", []byte("[scheduling]\nmax_bypass = \"-1h\"\n"), Default(true))
	if err == nil || !strings.Contains(err.Error(), `at least 1s, or 0: no limit (also "never")`) {
		t.Error(err)
	}
}

func TestFairIsNotUnfair(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"[scheduling]\npolicy = \"fair\"\nfair_share = false\n", "[scheduling]\nfair_share = false\npolicy = \"fair\"\n"} {
		_, err := Parse("config.toml", []byte(text), Default(true))
		if err == nil || !strings.Contains(err.Error(), `scheduling.fair_share: expected true with policy = "fair", found false`) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{"max_bypass = \"soon\"", "max_bypass = \"10ms\"", "preempt = \"always\""} {
		if c, err := Parse("config.toml", []byte("[scheduling]\n"+text+"\n"), Default(true)); err == nil {
			t.Errorf("%s was taken: %+v", text, c)
		}
	}
}

// TestEachKeyOfAUserIsTheirs, also where it stands alone in their table.
func TestEachKeyOfAUserIsTheirs(t *testing.T) {
	t.Parallel()
	for _, k := range userKeys {
		text := "[limits.users.ann]\n" + k.key + " = 3"
		if k.key == "memory_total" {
			text = strings.Replace(text, "3", `"3G"`, 1)
		}
		c, err := Parse("f", []byte(text), Default(true))
		if unlimited := Default(true); err != nil || maps.Equal(c.Limits.Users, unlimited.Limits.Users) && maps.Equal(c.QueuedJobsOf, unlimited.QueuedJobsOf) {
			t.Errorf("%s: %v", k.key, err)
		}
	}
}

func TestLimitsByDefault(t *testing.T) {
	t.Parallel()
	for gpus, want := range map[int]float64{0: 0, 1: 0, 2: 1, 3: 2, 8: 4} {
		if got := Default(true).Limits.On(gpus, sched.Host{}).Default; got != (sched.Limit{Jobs: 64, Share: want}) {
			t.Errorf("of %d GPUs a user may have %+v", gpus, got)
		}
	}
	for text, want := range map[string]struct {
		limit  sched.Limit
		borrow time.Duration
	}{
		"":                             {sched.Limit{}, 0},
		"[limits]\ngpus_max = 3":       {sched.Limit{GPUs: 3}, 0},
		"[limits]\ngpus = 2":           {sched.Limit{Share: 2}, 4 * time.Hour},
		"[limits.users.ann]\ngpus = 2": {sched.Limit{}, 4 * time.Hour},
		"[limits]\ngpus = 2\nborrow_time = 0\ngpus_max = \"75%\"": {sched.Limit{Share: 2, GPUs: 6}, -1},
	} {
		c, err := Parse("f", []byte(text), Default(false))
		limits := c.Limits.On(8, sched.Host{})
		if err != nil || limits.Default != want.limit || c.RulesWith(limits).BorrowTime != want.borrow {
			t.Errorf("%s: %+v, borrowed for %s: %v", text, limits.Default, c.RulesWith(limits).BorrowTime, err)
		}
	}
	// A user can always run a job with one CPU.
	for cpus, want := range map[int]int{1: 1, 2: 1, 3: 2, 64: 32} {
		host := sched.Host{CPUs: cpus, MemMiB: int64(cpus) * 1000}
		if got := Default(true).Limits.On(1, host).Default; got != (sched.Limit{Jobs: 64, CPUs: want, MemMiB: host.MemMiB / 2}) {
			t.Errorf("of %+v a user may have %+v", host, got)
		}
	}
	shared, private := Default(true), Default(false)
	if _, total := site.Host(); shared.MemoryMiB() != (total+1)/2 || private.MemoryMiB() != 0 {
		t.Errorf("of %d MiB a job may have %d, or on its own %d", total, shared.MemoryMiB(), private.MemoryMiB())
	}
	if got := private.Limits.On(8, sched.Host{CPUs: 8, MemMiB: 8000}); got.Default != (sched.Limit{}) || private.MaxLog != 0 || private.Grace != 0 || private.MaxPriority < 1000 {
		t.Errorf("a private daemon limits its user: %+v", private)
	}
	var c Config
	for written, want := range map[string]Portion{`"75%"`: {Percent: 75}, `" 12.5 % "`: {Percent: 12.5}, "4": {Amount: 4}, "0.5": {Amount: 0.5}, "0": {}} {
		c, err := Parse("f", []byte("[limits]\ngpus = "+written), c)
		if err != nil || c.Limits.Default.GPUs != want {
			t.Errorf("%s is %+v: %v", written, c.Limits.Default.GPUs, err)
		}
	}
	for _, bad := range []string{`"0%"`, `"101%"`, `"-1%"`, `"NaN%"`, `"%"`, `"half"`, "-1", "1025"} {
		if _, err := Parse("f", []byte("[limits]\ngpus = "+bad), c); err == nil || !strings.Contains(err.Error(), "percentage") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
