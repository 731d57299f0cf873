package front

import (
	"bytes"
	"cmp"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"berth/internal/job/jobfile"
	"berth/internal/machine/site"
)

// patience is how long the reply may take before the whole program waits for it,
// and says so.
const patience = time.Second

// submit sends the request of a plain `berth submit -- COMMAND`, and prints the id
// if the reply is the usual one. Otherwise sent is the connection, if the request
// has been sent.
func submit(words []string) (sent int, done bool) {
	o, plain := read(words)
	if !plain {
		return nothing, false
	}
	request, plain := o.request()
	if !plain {
		return nothing, false
	}
	socket := o.place()
	if socket == "" {
		return nothing, false
	}
	conn := connect(socket)
	if conn == nothing || !send(conn, request) {
		return conn, false
	}
	id := usual(conn)
	switch {
	case id == "":
		return conn, false
	case o.quiet:
		return conn, write(id + "\n")
	}
	return conn, write("submitted job " + id + "\n")
}

// order is what a command line asks for.
type order struct {
	socket  string
	quiet   bool
	pairs   []jobfile.Pair
	command []string
}

// here are the keys whose values the whole program checks, completes or acts on.
func here(key string) bool {
	switch key {
	case "dir", "venv", "conda", "output", "export", "snapshot":
		return true
	}
	return false
}

// read reads the flags of a job, and those without which few scripts submit one.
// Plain is false for anything else, mistakes included.
func read(words []string) (o order, plain bool) {
	for len(words) > 0 && words[0] != "--" {
		switch words[0] {
		case "-q", "--quiet":
			o.quiet, words = true, words[1:]
			continue
		case "--socket":
			if len(words) < 2 || o.socket != "" {
				return o, false
			}
			o.socket, words = words[1], words[2:]
			continue
		}
		pair, rest, err := jobfile.CutFlag(words)
		if err == nil {
			pair, err = jobfile.Plain(pair)
		}
		if err != nil || pair.Value == "" || here(pair.Key) || strings.HasPrefix(pair.Value, jobfile.EstimatePrefix) || o.has(pair.Key) || !asSpelt(words[0], pair.Key) {
			return o, false
		}
		o.pairs, words = append(o.pairs, pair), rest
	}
	if len(words) < 2 || words[1] == "" {
		return o, false
	}
	o.command = words[1:]
	return o, true
}

// asSpelt reports whether a long flag is the one of the help: a directive of a script
// may be any name of its key.
func asSpelt(word, key string) bool {
	name, long := strings.CutPrefix(word, "--")
	name, _, _ = strings.Cut(name, "=")
	field, err := jobfile.Lookup(key)
	return !long || err == nil && field.FlagName() == name
}

func (o *order) has(key string) bool {
	for _, pair := range o.pairs {
		if pair.Key == key {
			return true
		}
	}
	return false
}

// place is the socket of the daemon that is meant; empty: it is not plain which
// one, or none has been there.
func (o *order) place() string {
	if os.Getenv("BERTH_HOST") != "" || os.Getenv("BERTH_SIM") != "" {
		return ""
	}
	o.socket = cmp.Or(o.socket, os.Getenv("BERTH_SOCKET"))
	if o.socket != "" {
		return o.socket
	}
	if shared := site.SharedPlaces().Socket; exists(shared) {
		return shared
	}
	if own, err := site.PrivatePlaces(os.Getenv); err == nil && exists(own.Socket) {
		return own.Socket
	}
	return ""
}

func exists(path string) bool {
	var stat syscall.Stat_t
	return syscall.Lstat(path, &stat) == nil
}

// request is the whole HTTP request, as the API's client would write it.
func (o *order) request() (text []byte, plain bool) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, false
	}
	b := &body{plain: true}
	b.raw(`{"jobs":[{"command":`)
	if len(o.command) == 1 {
		b.quote(o.command[0])
	} else {
		b.list(o.command)
	}
	env := 0
	for _, pair := range o.pairs {
		if !strings.HasPrefix(pair.Key, "env.") {
			b.key(pair.Key)
			b.quote(pair.Value)
		} else if env++; env == 1 {
			b.key("env")
			b.variables(o.pairs)
		}
	}
	b.raw(`}],"dir":`)
	b.quote(dir)
	if environ := kept(os.Environ()); len(environ) > 0 {
		b.key("environ")
		b.list(environ)
	}
	b.key("umask")
	b.raw(strconv.Itoa(site.Umask()))
	if term := os.Getenv("TERM"); term != "" {
		b.key("term")
		b.quote(term)
	}
	b.raw("}")
	head := "POST /v1/jobs HTTP/1.1\r\nHost: berth\r\nUser-Agent: berth\r\nConnection: close\r\nPrefer: berth-snapshot\r\n" +
		"Content-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(b.text)) + "\r\n\r\n"
	return append([]byte(head), b.text...), b.plain
}

// kept leaves out a token for another machine, which must not be stored with the job.
func kept(environ []string) []string {
	for i, variable := range environ {
		if strings.HasPrefix(variable, "BERTH_HOST_TOKEN=") {
			return append(environ[:i:i], environ[i+1:]...)
		}
	}
	return environ
}

// body is JSON that is being written. Text that JSON cannot hold is not plain.
type body struct {
	text  []byte
	plain bool
}

func (b *body) raw(s string) { b.text = append(b.text, s...) }

func (b *body) key(name string) {
	b.raw(",")
	b.quote(name)
	b.raw(":")
}

func (b *body) list(values []string) {
	b.raw("[")
	for i, value := range values {
		if i > 0 {
			b.raw(",")
		}
		b.quote(value)
	}
	b.raw("]")
}

func (b *body) variables(pairs []jobfile.Pair) {
	open := "{"
	for _, pair := range pairs {
		if name, is := strings.CutPrefix(pair.Key, "env."); is {
			b.raw(open)
			b.quote(name)
			b.raw(":")
			b.quote(pair.Value)
			open = ","
		}
	}
	b.raw("}")
}

func (b *body) quote(s string) {
	b.plain = b.plain && utf8.ValidString(s)
	b.text = append(b.text, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b.text = append(b.text, '\\', c)
		case c < ' ':
			b.text = append(b.text, '\\', 'u', '0', '0', "0123456789abcdef"[c>>4], "0123456789abcdef"[c&15])
		default:
			b.text = append(b.text, c)
		}
	}
	b.text = append(b.text, '"')
}

// connect connects to a daemon that runs: a stopped one gets no request, since it
// would carry it out later.
func connect(socket string) int {
	conn, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nothing
	}
	if err = syscall.Connect(conn, &syscall.SockaddrUnix{Name: socket}); err == nil {
		peer, credErr := syscall.GetsockoptUcred(conn, syscall.SOL_SOCKET, syscall.SO_PEERCRED)
		if credErr == nil && !stopped(int(peer.Pid)) {
			return conn
		}
	}
	syscall.Close(conn)
	return nothing
}

func stopped(pid int) bool {
	fd, err := syscall.Open("/proc/"+strconv.Itoa(pid)+"/stat", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return false // in another container
	}
	defer syscall.Close(fd)
	var stat [512]byte
	n, _ := syscall.Read(fd, stat[:]) // nothing was read: it runs
	end := bytes.LastIndexByte(stat[:max(n, 0)], ')')
	return end >= 0 && bytes.HasPrefix(stat[end+1:], []byte(" T"))
}

// send writes the request. If it returns false, a part may have been sent.
func send(conn int, request []byte) bool {
	for len(request) > 0 {
		n, err := syscall.Write(conn, request)
		if err != nil && err != syscall.EINTR {
			return false
		}
		request = request[max(n, 0):]
	}
	return true
}

// usual is the id in a reply that says only that one job was submitted, to a daemon
// of this version. The reply stays unread, so that the whole program can read it.
func usual(conn int) (id string) {
	wait := syscall.NsecToTimeval(int64(patience))
	_ = syscall.SetsockoptTimeval(conn, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &wait) // without it, it only says later that it waits
	var reply [2048]byte
	n, _, err := syscall.Recvfrom(conn, reply[:], syscall.MSG_PEEK)
	for err == syscall.EINTR {
		n, _, err = syscall.Recvfrom(conn, reply[:], syscall.MSG_PEEK)
	}
	_ = syscall.SetsockoptTimeval(conn, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &syscall.Timeval{})
	head, body, found := strings.Cut(string(reply[:max(n, 0)]), "\r\n\r\n")
	if !found || !strings.HasPrefix(head, "HTTP/1.1 200 ") || !strings.Contains(head+"\r\n", "\r\nServer: berth/"+Version+"\r\n") {
		return ""
	}
	text, begins := strings.CutPrefix(body, `{"jobs":[{"id":"`)
	id, rest, found := strings.Cut(text, `","name":"`)
	_, after, ends := strings.Cut(rest, `"`)
	if !begins || !found || !ends || after != "}]}\n" || strings.Trim(id, "0123456789") != "" {
		return ""
	}
	return id
}
