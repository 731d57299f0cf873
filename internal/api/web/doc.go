// Package web is the page as it is served: the bundle built from web/, and the
// headers that keep it to itself. It may not know a job, a caller or a daemon:
// the page gets its data from the api, like every other client.
package web
