package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
)

//go:embed dist
var bundle embed.FS

// policy allows the page its own files and its own server, and nothing else: no
// inline script or style, no frame around it, no form that leaves it. A script
// cannot turn text into markup either.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// file is one file of the bundle, ready to be sent.
type file struct {
	kind, tag    string
	data, zipped []byte
	forever      bool // its name changes with its content
}

// Handler serves the page. It asks nobody who they are: the files are the same
// for everyone, and public.
func Handler() http.Handler { return handler(bundle) }

func handler(from fs.FS) http.Handler {
	files := sync.OnceValue(func() map[string]*file { return load(from) }) // most daemons show no page
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		f, found := files()[r.URL.Path]
		if !found {
			header.Set("Content-Type", "text/plain; charset=utf-8")
			w.WriteHeader(http.StatusNotFound)
			return
		}
		f.send(w, r)
	})
}

func (f *file) send(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Type", f.kind)
	header.Set("ETag", f.tag)
	header.Set("Vary", "Accept-Encoding")
	header.Set("Cache-Control", "no-cache")
	if f.forever {
		header.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	if r.Header.Get("If-None-Match") == f.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	body := f.data
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		header.Set("Content-Encoding", "gzip")
		body = f.zipped
	}
	header.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // a reader that is gone needs no answer
}

// load reads the bundle by the paths it is served under.
func load(from fs.FS) map[string]*file {
	files := map[string]*file{}
	err := fs.WalkDir(from, "dist", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(from, name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(data)
		f := &file{
			kind: mime.TypeByExtension(path.Ext(name)), tag: `"` + hex.EncodeToString(sum[:8]) + `"`,
			data: data, zipped: zip(data), forever: path.Dir(name) == "dist/assets",
		}
		if at := strings.TrimPrefix(name, "dist"); at == "/index.html" {
			files["/"] = f
		} else {
			files[at] = f
		}
		return nil
	})
	if err != nil {
		panic("bug: the embedded page cannot be read: " + err.Error())
	}
	return files
}

func zip(data []byte) []byte {
	var to bytes.Buffer
	w, err := gzip.NewWriterLevel(&to, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(data)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		panic("bug: " + err.Error()) // a buffer takes everything
	}
	return to.Bytes()
}
