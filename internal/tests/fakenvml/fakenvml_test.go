package fakenvml_test

import (
	"debug/elf"
	"path/filepath"
	"testing"

	"berth/internal/tests/fakenvml"
)

// exports are the names that a program finds in a library.
func exports(t *testing.T, dir string) map[string]bool {
	t.Helper()
	file, err := elf.Open(filepath.Join(dir, fakenvml.LibraryName))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	symbols, err := file.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, symbol := range symbols {
		names[symbol.Name] = true
	}
	return names
}

func TestAnOlderLibraryLacksWhatItIsToLackAndNothingElse(t *testing.T) {
	whole, old := fakenvml.Build(t), fakenvml.Build(t, fakenvml.MemoryV2...)
	if whole == old || fakenvml.Build(t) != whole {
		t.Fatalf("built in %s, %s and %s: one directory for each content", whole, old, fakenvml.Build(t))
	}
	for name := range exports(t, whole) {
		if exports(t, old)[name] == (name == fakenvml.MemoryV2[0]) {
			t.Errorf("%s: in the older library %v", name, exports(t, old)[name])
		}
	}
	for _, name := range fakenvml.MemoryV2 {
		if !exports(t, whole)[name] {
			t.Errorf("the whole library lacks %s", name)
		}
	}
}
