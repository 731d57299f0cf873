package notify

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// TestThePageHasEveryKey of the JSON that webhooks and commands get.
func TestThePageHasEveryKey(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reference/json.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Message\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, part := range []reflect.Type{reflect.TypeFor[Message](), reflect.TypeFor[Batch](), reflect.TypeFor[Fact](), reflect.TypeFor[Tally]()} {
		for i := range part.NumField() {
			key, _, _ := strings.Cut(part.Field(i).Tag.Get("json"), ",")
			if key != "" && !strings.Contains(section, "`"+key+"`") {
				t.Errorf("%s of %s is not on the page", key, part)
			}
		}
	}
}
