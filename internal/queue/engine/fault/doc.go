// Package fault names the steps at which a test build of berth can be made to
// die. In every other build they do nothing.
package fault
