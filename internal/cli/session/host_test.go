package session

import (
	"os"
	"path/filepath"
	"testing"
)

func TestAnAddressIsForTLSOrASocket(t *testing.T) {
	for typed, want := range map[string]string{
		"localhost:7878":        "https://localhost:7878",
		"127.0.0.1:7878":        "https://127.0.0.1:7878",
		"[::1]:7878":            "https://[::1]:7878",
		"gpu1.example.org:7878": "https://gpu1.example.org:7878",
		"10.0.0.1:80":           "https://10.0.0.1:80",
		"https://gpu1/":         "https://gpu1",
		"unix:/tmp/berth.sock":  "unix:/tmp/berth.sock",
		"unix:":                 "",
		"gpu1":                  "",
		":7878":                 "",
		"":                      "",
	} {
		if got := wholeAddress(typed); got != want {
			t.Errorf("%q is taken for %q, want %q", typed, got, want)
		}
	}
}

// TestATokenGoesToItsOwnMachineOnly: one that hosts.toml has for an address is
// found by name and by address, and is never sent anywhere else.
func TestATokenGoesToItsOwnMachineOnly(t *testing.T) {
	config := t.TempDir()
	env := map[string]string{"XDG_CONFIG_HOME": config, "XDG_STATE_HOME": config}
	getenv := func(name string) string { return env[name] }
	const hosts = `gpu1 = {address = "gpu1:7878", token = "one", ca = "a.pem"}` + "\n" + `gpu2 = {address = "https://gpu2:7878/", token = "two"}` + "\n"
	if err := os.Mkdir(filepath.Join(config, "berth"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(config, "berth", "hosts.toml"), []byte(hosts), 0o600); err != nil {
		t.Fatal(err)
	}
	for typed, want := range map[string]remote{
		"gpu1":              {"https://gpu1:7878", "one", filepath.Join(config, "berth", "a.pem")},
		"gpu1:7878":         {"https://gpu1:7878", "one", filepath.Join(config, "berth", "a.pem")},
		"https://gpu2:7878": {"https://gpu2:7878", "two", ""},
	} {
		if got, err := findHost(typed, getenv); err != nil || *got != want {
			t.Errorf("%s: %+v, %v", typed, got, err)
		}
	}
	for _, typed := range []string{"gpu3", "gpu1:7879", "http://gpu1:7878", "https://gpu1"} {
		if got, err := findHost(typed, getenv); err == nil {
			t.Errorf("%s: %+v", typed, got)
		}
	}
	env["BERTH_HOST_TOKEN"] = "typed"
	for host, want := range map[string]string{"gpu1": "one", "gpu4:7878": "typed"} {
		if got, err := findHost(host, getenv); err != nil || got.Token != want {
			t.Errorf("%s: %+v, %v", host, got, err)
		}
	}
}
