package main

import (
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const pages = "../../docs/explanation"

func TestThePicturesAreDrawnByThisProgram(t *testing.T) {
	for _, p := range pictures() {
		got, err := os.ReadFile(filepath.Join(pages, p.name+".svg"))
		if err != nil || string(got) != p.svg() {
			t.Errorf("%s.svg is not what scripts/pictures draws; run make pictures (%v)", p.name, err)
		}
	}
}

func TestEveryPageOfExplanationShowsItsPicture(t *testing.T) {
	files, err := filepath.Glob(pages + "/*.md")
	if err != nil || len(files) != len(pictures()) {
		t.Errorf("%d pages and %d pictures (%v)", len(files), len(pictures()), err)
	}
	for _, p := range pictures() {
		page, err := os.ReadFile(filepath.Join(pages, p.name+".md"))
		if err != nil || !strings.Contains(string(page), "]("+p.name+".svg)") {
			t.Errorf("%s.md does not show %s.svg (%v)", p.name, p.name, err)
		}
	}
}

func TestAPictureIsWellFormedAndHasWordsForThoseWhoCannotSeeIt(t *testing.T) {
	for _, p := range pictures() {
		for d := xml.NewDecoder(strings.NewReader(p.svg())); ; {
			if _, err := d.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", p.name, err)
			}
		}
		if p.title == "" || len(p.desc) < 80 {
			t.Errorf("%s has no title or no description", p.name)
		}
	}
}
