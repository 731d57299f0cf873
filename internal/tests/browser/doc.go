// Package browser uses the page in a real Chromium, as people do: against a real
// daemon with simulated GPUs, with mouse and keyboard, as users who mean well and
// as those who do not. It has tests only, and skips them where there is no
// browser. It also makes the pictures of README.md.
//
// It may not know more than somebody in front of a screen does: apart from the
// wire types of the api it imports no package of berth. What it checks of a job
// it asks the daemon, because a page may say what is not so.
package browser
