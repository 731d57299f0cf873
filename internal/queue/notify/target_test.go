package notify

import (
	"strings"
	"testing"
)

func TestReadingTargets(t *testing.T) {
	tests := []struct{ typed, want, shown string }{
		{"mailto:ann@example.org", "mailto:ann@example.org", "mailto:ann@example.org"},
		{"MAILTO:ann@example.org", "mailto:ann@example.org", "mailto:ann@example.org"},
		{"webhook:https://h.example/a/s3cret?k=v", "webhook:https://h.example/a/s3cret?k=v", "webhook:https://h.example/…"},
		{"webhook:https://ann:pw@h.example:8443/", "webhook:https://ann:pw@h.example:8443/", "webhook:https://h.example:8443/…"},
		{"slack:https://hooks.slack.com/services/T/B/x", "slack:https://hooks.slack.com/services/T/B/x", "slack:https://hooks.slack.com/…"},
		{"ntfy:my-topic_1", "ntfy:https://ntfy.sh/my-topic_1", "ntfy:https://ntfy.sh/…"},
		{"ntfy:https://ntfy.example.org/sub/topic", "ntfy:https://ntfy.example.org/sub/topic", "ntfy:https://ntfy.example.org/…"},
		{"exec: notify-send $BERTH_NOTIFY_TITLE ", "exec:notify-send $BERTH_NOTIFY_TITLE", "exec:…"},
	}
	for _, tt := range tests {
		got, err := ParseTarget(tt.typed)
		if err != nil || got.String() != tt.want || got.Shown() != tt.shown {
			t.Errorf("%s: %q shown %q, %v; expected %q shown %q", tt.typed, got, got.Shown(), err, tt.want, tt.shown)
		}
		if again, err := ParseTarget(got.String()); again != got || err != nil {
			t.Errorf("%s: read back as %v, %v", tt.typed, again, err)
		}
	}
}

func TestBadTargets(t *testing.T) {
	tests := []struct{ typed, says string }{
		{"", "begins with mailto:"},
		{"ann@example.org", "begins with mailto:"},
		{"slak:https://hooks.slack.com/x", "did you mean slack?"},
		{"mailto:", "one address"},
		{"mailto:ann", "one address"},
		{"mailto:Ann <ann@example.org>", "one address"},
		{"mailto:-oQ/tmp@example.org", "one address"},
		{"mailto:a@b.c,d@e.f", "one address"},
		{"mailto:a@b.c\r\nBcc: x@y.z", "control characters"},
		{"mailto:änn@example.org", "one address"},
		{"webhook:ftp://h/x", "URL such as"},
		{"webhook:https:///x", "URL such as"},
		{"webhook:https://:80/x", "name of a host"},
		{"webhook:https://h/x#y", "fragment"},
		{"webhook:file:///etc/passwd", "URL such as"},
		{"slack:/etc/passwd", "URL such as"},
		{"ntfy:a b", "a topic"},
		{"ntfy:https://ntfy.sh/", "ends with a topic"},
		{"ntfy:https://ntfy.sh/a?x=1", "ends with a topic"},
		{"exec:  ", "a shell command"},
		{"exec:a\nb", "control characters"},
		{"webhook:https://h/" + strings.Repeat("x", maxTarget), "at most 2048 bytes"},
	}
	for _, tt := range tests {
		if _, err := ParseTarget(tt.typed); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%.40q: %v; expected %q", tt.typed, err, tt.says)
		}
	}
}

func TestAnErrorAboutATargetKeepsItsSecret(t *testing.T) {
	for _, typed := range []string{
		"webhok:https://h/s3cret", "webhook:https//h/s3cret", "webhook:https://h/s3cret#a", "slack:hooks.slack.com/s3cret", "end,slack:s3cret",
		"ntfy:https://h/s3cret/?a=b", "end:webhok:https://h/s3cret", "exec:s3cret\x1b",
	} {
		_, err := parseRule(typed)
		if err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v", typed, err)
		}
	}
}

func TestHidingATarget(t *testing.T) {
	target, err := ParseTarget("webhook:https://ann:passw0rd@h.example/in/s3cret?key=t0ken")
	if err != nil {
		t.Fatal(err)
	}
	for _, said := range []string{
		`Post "https://ann:passw0rd@h.example/in/s3cret?key=t0ken": EOF`, `Post "https://ann:***@h.example/in/s3cret?key=t0ken": EOF`,
		"no such hook: s3cret", "bad key=t0ken", "ann/passw0rd",
	} {
		hidden := target.Hide(said)
		for _, secret := range []string{"passw0rd", "s3cret", "t0ken"} {
			if strings.Contains(hidden, secret) {
				t.Errorf("%s: %s is in %s", said, secret, hidden)
			}
		}
	}
}

func TestPlainHTTPIsNoted(t *testing.T) {
	for typed, noted := range map[string]bool{
		"webhook:http://h.example/x": true, "webhook:https://h.example/x": false, "webhook:http://127.0.0.1:8/x": false,
		"webhook:http://[::1]/x": false, "slack:http://localhost/x": false, "exec:curl http://h": false, "ntfy:http://10.0.0.1/t": true,
	} {
		target, err := ParseTarget(typed)
		if err != nil || (target.Clear() != "") != noted {
			t.Errorf("%s: %q, %v", typed, target.Clear(), err)
		}
	}
}

func TestDiscordHasItsOwnMessages(t *testing.T) {
	for url, want := range map[string]bool{
		"https://discord.com/api/webhooks/1/x": true, "https://discord.com/api/webhooks/1/x/slack": false,
		"https://ptb.discord.com/api/webhooks/1/x": true, "https://notdiscord.com/x": false, "https://hooks.slack.com/x": false,
	} {
		if got := Discord(url); got != want {
			t.Errorf("%s: %v", url, got)
		}
	}
}

func TestReadingRules(t *testing.T) {
	tests := []struct{ typed, want string }{
		{"mailto:a@b.c", "end:mailto:a@b.c"},
		{"fail,start:mailto:a@b.c", "start,fail:mailto:a@b.c"},
		{"End, FAIL ,end:exec:true", "end,fail:exec:true"},
		{"idle,oom:ntfy:t", "oom,idle:ntfy:https://ntfy.sh/t"},
	}
	for _, tt := range tests {
		if got, err := parseRule(tt.typed); err != nil || got.String() != tt.want {
			t.Errorf("%s: %s, %v; expected %s", tt.typed, got, err, tt.want)
		}
	}
	for _, typed := range []string{"", "end", "ends:mailto:a@b.c", ":mailto:a@b.c", "end,:mailto:a@b.c", "end:", "end:fail:mailto:a@b.c"} {
		if got, err := parseRule(typed); err == nil {
			t.Errorf("%q: read as %s", typed, got)
		}
	}
}

func TestRulesWithOneTargetBecomeOne(t *testing.T) {
	rules, err := ParseRules([]string{"idle:exec:a", "end:exec:b", "start,idle:exec:a"})
	if err != nil || len(rules) != 2 || rules[0].String() != "start,idle:exec:a" || rules[1].String() != "end:exec:b" {
		t.Errorf("%v, %v", rules, err)
	}
	if !rules[0].Wants(OnEnd, OnIdle) || rules[0].Wants(OnEnd, OnFail) {
		t.Error("Wants is wrong")
	}
	var many []string
	for _, name := range strings.Split("a b c d e f g h i", " ") {
		many = append(many, "end:exec:"+name)
	}
	if _, err := ParseRules(many); err == nil {
		t.Errorf("%d targets were accepted", len(many))
	}
}

func FuzzTarget(f *testing.F) {
	f.Add("mailto:a@b.c")
	f.Add("ntfy:https://u:p@h/t")
	f.Fuzz(func(t *testing.T, s string) {
		target, err := ParseTarget(s)
		if err != nil {
			return
		}
		again, err := ParseTarget(target.String())
		if err != nil || again != target {
			t.Errorf("%q: %v became %v, %v", s, target, again, err)
		}
	})
}
