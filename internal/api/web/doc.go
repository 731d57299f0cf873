// Package web is the page as it is served: the bundle built from web/, and the
// headers that keep it to itself. It may not know a job, a caller or a daemon:
// the page gets its data from the api, like every other client.
//
// A user logs in with a one-time secret that `berth web` puts behind the # of the
// address, which no browser sends to a server. From then on the browser signs each
// request with a key that no script can read (api/proof.go). The listening sockets
// outlive the daemon (daemon/portkeep.go), so no other user can listen there in
// between.
package web
