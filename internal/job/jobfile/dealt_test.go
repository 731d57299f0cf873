package jobfile

import "testing"

func TestWithoutAfter(t *testing.T) {
	for line, want := range map[string]string{
		"python a.py":           "python a.py",
		"[ -f x ] && echo y":    "[ -f x ] && echo y",
		"[after=a] python b.py": "python b.py",
		"[vram=3G after=a,2:any name='x y'] python b.py\r":      "[vram=3G name='x y'] python b.py",
		`[after="a" setup="echo \"]\"" exclusive ] run after=3`: `[setup="echo \"]\"" exclusive] run after=3`,
		"[after=a] [x=y] z": "[priority=0] [x=y] z",
	} {
		got, err := WithoutAfter(line)
		if err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", line, got, err, want)
		}
	}
	if got, err := WithoutAfter("[after=a python"); err == nil {
		t.Errorf("an open block: %q", got)
	}
}
