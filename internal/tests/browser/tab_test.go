package browser

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"berth/internal/tests/testkit"
)

// tools run in every page before its own scripts. They find what a person would
// see, and report breaches of the content security policy.
//
//go:embed testdata/tools.js
var tools string

// tab is a window of a browser that shares nothing with the others.
type tab struct {
	t      *testing.T
	ctx    context.Context
	origin string // no request may go elsewhere; empty: any may
	width  int64

	mu     sync.Mutex
	wrong  []string // what no page of ours may do
	status map[string]int64

	forgiven bool // the test itself did something wrong, and may hear of it late
}

// newTab opens a tab. When the test ends, nothing in it may have gone wrong.
func newTab(t *testing.T, origin string) *tab {
	t.Helper()
	return tabIn(t, needsBrowser(t), origin, chromedp.WithNewBrowserContext())
}

// tabIn opens a tab beside others.
func tabIn(t *testing.T, in context.Context, origin string, options ...chromedp.ContextOption) *tab {
	t.Helper()
	ctx, closeTab := chromedp.NewContext(in, options...)
	b := &tab{t: t, ctx: ctx, origin: origin, status: map[string]int64{}}
	t.Cleanup(func() {
		closeTab()
		for _, wrong := range b.takeWrong() {
			t.Error(wrong)
		}
	})
	testkit.Must(t, chromedp.Do(ctx)) // makes the tab, which lives as long as this context
	b.watch()
	call(b, network.Enable, network.EnableParams{})
	call(b, runtime.AddBinding, runtime.AddBindingParams{Name: "breach"})
	call(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: tools})
	call(b, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true}) // of several tabs, one has the focus
	b.size(1280, 850)
	return b
}

// enter opens a tab and logs it in.
func (h *host) enter(who *person) *tab {
	h.t.Helper()
	b := newTab(h.t, h.origin())
	b.open(h.login(who))
	b.until("the page is there", `document.querySelector("header") && test.heading().startsWith("Overview")`)
	return b
}

// watch takes note of what the browser reports.
func (b *tab) watch() {
	hear(b, network.RequestWillBeSent, func(e network.EventRequestWillBeSent) string {
		// The browser draws the sign of a field for a time from data of its own.
		if b.origin != "" && !strings.HasPrefix(e.Request.URL, b.origin+"/") && !strings.HasPrefix(e.Request.URL, "data:") {
			return "a request to " + e.Request.URL
		}
		return ""
	})
	hear(b, network.ResponseReceived, func(e network.EventResponseReceived) string {
		b.status[e.Response.URL] = e.Response.Status
		return ""
	})
	hear(b, runtime.ExceptionThrown, func(e runtime.EventExceptionThrown) string {
		return "an exception: " + cmp.Or(e.ExceptionDetails.Exception, &runtime.RemoteObject{}).Description
	})
	hear(b, runtime.BindingCalled, func(e runtime.EventBindingCalled) string {
		return "a breach of the content security policy: " + e.Payload
	})
	hear(b, log.EntryAdded, func(e log.EventEntryAdded) string {
		if e.Entry.Source == log.EntrySourceSecurity {
			return "the browser warns: " + e.Entry.Text
		}
		return ""
	})
	hear(b, page.JavascriptDialogOpening, func(e page.EventJavascriptDialogOpening) string {
		// The page waits for an answer.
		go func() {
			_, _ = chromedp.Call(b.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{Accept: true})
		}()
		return "a script opened a dialog: " + e.Message
	})
}

// hear calls a function for each event of a kind; what it returns went wrong.
func hear[E any](b *tab, kind cdp.Event[E], take func(E) string) {
	events := chromedp.Events(b.ctx, kind)
	go func() {
		for e, err := range events {
			if err != nil {
				return
			}
			b.mu.Lock()
			if wrong := take(e); wrong != "" {
				b.wrong = append(b.wrong, wrong)
			}
			b.mu.Unlock()
		}
	}()
}

// mayRoam lets the tab go to other hosts.
func (b *tab) mayRoam() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.origin = ""
}

// forget forgets the answers so far.
func (b *tab) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.status)
}

// call gives the browser one command.
func call[P, R any](b *tab, command cdp.Command[P, R], params P) R {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, testkit.Patience)
	defer cancel()
	reply, err := chromedp.Call(ctx, command, params)
	if err != nil {
		b.t.Fatalf("%s: %v; the page says\n%s", command.Method, err, b.text())
	}
	return reply
}

// takeWrong returns what went wrong since the last time.
func (b *tab) takeWrong() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	wrong := b.wrong
	b.wrong = nil
	if b.forgiven {
		return nil
	}
	return wrong
}

// answer is the status of the last reply to a request; 0: none came.
func (b *tab) answer(address string) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.status[address]
}

// open goes to an address.
func (b *tab) open(address string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, testkit.Patience)
	defer cancel()
	if err := chromedp.Do(ctx, chromedp.Navigate(address)); err != nil {
		b.t.Fatalf("open %s: %v", address, err)
	}
}

// js is a value as JavaScript writes it.
func js(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// eval is what an expression has as its value, once it is there.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	value, err := try[T](b, expression)
	if err != nil {
		b.t.Fatalf("%s: %v; the page says\n%s", expression, err, b.text())
	}
	return value
}

func try[T any](b *tab, expression string) (T, error) {
	ctx, cancel := context.WithTimeout(b.ctx, testkit.Patience)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// run evaluates a statement for what it does.
func (b *tab) run(statement string) {
	b.t.Helper()
	eval[bool](b, "(() => {"+statement+"; return true})()")
}

// holds waits until an expression is true.
func (b *tab) holds(expression string) bool {
	b.t.Helper()
	return testkit.Holds(testkit.Patience, func() bool {
		// While a page is being replaced, this fails; the next page has an answer.
		found, err := try[bool](b, "test.until(() => "+expression+")")
		return err == nil && found
	})
}

// until fails the test if an expression does not become true.
func (b *tab) until(what, expression string) {
	b.t.Helper()
	if !b.holds(expression) {
		b.t.Fatalf("still not: %s (%s); the page says\n%s", what, expression, b.text())
	}
}

// says waits until the page shows a text.
func (b *tab) says(text string) {
	b.t.Helper()
	b.until(fmt.Sprintf("it says %q", text), "document.body.innerText.includes("+js(text)+")")
}

// text is what a person can read.
func (b *tab) text() string {
	text, err := try[string](b, `location.href + "\n" + (document.body?.innerText ?? "")`)
	if err != nil {
		return err.Error()
	}
	return text
}

// view goes to a view by its address, and waits for its heading.
func (b *tab) view(path, heading string) {
	b.t.Helper()
	b.run("location.hash = " + js(path))
	b.until("the view "+path, "test.heading().startsWith("+js(heading)+")")
}

// click clicks what has a name: a button, a link or a box to tick.
func (b *tab) click(selector, name string) {
	b.t.Helper()
	b.until(fmt.Sprintf("%s %q can be clicked", selector, name), "test.click("+js(selector)+", "+js(name)+")")
}

// choose takes an option of a list.
func (b *tab) choose(label, option string) {
	b.t.Helper()
	b.until(fmt.Sprintf("%q has %q", label, option), "test.choose("+js(label)+", "+js(option)+")")
}

// fill types a text into the field with a label, instead of what is in it.
func (b *tab) fill(label, text string) {
	b.t.Helper()
	b.until("a field "+label, "test.focus("+js(label)+")")
	call(b, input.InsertText, input.InsertTextParams{Text: text})
}

// press types keys.
func (b *tab) press(keys string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, testkit.Patience)
	defer cancel()
	testkit.Must(b.t, chromedp.Do(ctx, chromedp.KeyEvent(keys)))
}

func (b *tab) size(width, height int64) {
	b.t.Helper()
	b.width = width
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 700})
}

func (b *tab) theme(name string) {
	b.t.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}})
}

// cookies are those that the browser would send to an address.
func (b *tab) cookies(address string) []*network.Cookie {
	b.t.Helper()
	found := call(b, network.GetCookies, network.GetCookiesParams{URLs: []string{address}}).Cookies
	return slices.DeleteFunc(found, func(c *network.Cookie) bool { return !strings.HasPrefix(c.Name, "berth") })
}
