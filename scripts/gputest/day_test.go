package main

import (
	"encoding/xml"
	"io"
	"strings"
	"testing"
	"time"
)

// TestTheCostIsReadFromTheStory of a job that was parked once.
func TestTheCostIsReadFromTheStory(t *testing.T) {
	story := "11:10:19  parked: 8.6 GiB moved to the host's memory in 5.9 s\n11:10:21  resumed on gpu0 in 2.0 s, having been parked for 2s\n11:10:27  ended\n"
	found := tookPattern.FindAllStringSubmatch(story, -1)
	if len(found) != 2 || found[0][1] != "5.9" || found[1][1] != "2.0" {
		t.Errorf("found %q", found)
	}
}

// TestTheDayIsTheSameEverywhere, and fits into its four minutes.
func TestTheDayIsTheSameEverywhere(t *testing.T) {
	one, other := theDay(), theDay()
	var work time.Duration
	for i := range one {
		if one[i] != other[i] {
			t.Fatalf("job %d differs: %+v and %+v", i, one[i], other[i])
		}
		work += one[i].work
	}
	if len(one) != dayShort+dayLong || work > daySpan {
		t.Errorf("%d jobs with %v of work", len(one), work)
	}
}

// TestThePictureOfTheDayIsAPicture, whatever the GPU is called.
func TestThePictureOfTheDayIsAPicture(t *testing.T) {
	picture := drawDay(`<&"GPU`, []dayResult{{Name: "without parking", Pieces: []piece{{To: 20, Long: true}, {From: 20, To: 22}}}, {Name: "with parking", Pieces: []piece{{To: 3}}}})
	d := xml.NewDecoder(strings.NewReader(picture))
	for {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("%v in %s", err, picture)
		}
	}
	if strings.Count(picture, "<rect") != 4 {
		t.Errorf("it has %d boxes", strings.Count(picture, "<rect"))
	}
}
