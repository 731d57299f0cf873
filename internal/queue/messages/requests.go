package messages

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"strconv"
	"sync"
	"time"

	"berth/internal/api"
	"berth/internal/job"
	"berth/internal/queue/notify"
	"berth/internal/text/problem"
)

// Notify is the caller's rules, and the messages that are not delivered.
func (m *Messages) Notify(ctx context.Context, c api.Caller, q api.NotifyQuery) (api.Notify, error) {
	secrets := q.Secrets
	reply := notifyOf(m.wishes.get(c.UID, c.Name), secrets)
	err := m.withTeller(ctx, func(t *teller) {
		for _, e := range t.box.All() {
			if e.UID == c.UID && e.User == c.Name || e.User == "" && (c.UID == 0 || c.UID == m.setup.People.UID) {
				reply.Messages = append(reply.Messages, messageView(e, t.origin, host(), secrets))
			}
		}
	})
	return reply, err
}

func notifyOf(w wish, secrets bool) api.Notify {
	reply := api.Notify{Rules: []string{}, Signed: len(w.Key) > 0, Messages: []api.NotifyMessage{}}
	rules, _ := notify.ParseRules(w.Rules) // read when they were set
	for _, r := range rules {
		if secrets {
			reply.Rules = append(reply.Rules, r.String())
		} else {
			reply.Rules = append(reply.Rules, r.Shown())
		}
	}
	if secrets && reply.Signed {
		reply.Key = keyPrefix + base64.StdEncoding.EncodeToString(w.Key)
	}
	return reply
}

// keyPrefix begins a key in the form that libraries for Standard Webhooks read.
const keyPrefix = "whsec_"

func messageView(e notify.Entry, origin, host string, secrets bool) api.NotifyMessage {
	msg := e.Message(origin, host)
	v := api.NotifyMessage{ID: msg.ID, Target: e.Target, Title: msg.Title, Stage: string(e.Stage), Since: e.Since, Next: e.Next, Tries: e.Tries, Error: e.Error}
	if e.Stage == notify.Sealed {
		v.Stage = "waiting"
	}
	if target, err := notify.ParseTarget(e.Target); !secrets && err == nil {
		v.Target = target.Shown()
	}
	return v
}

// withTeller runs f while nothing else uses the teller.
func (m *Messages) withTeller(ctx context.Context, f func(t *teller)) error {
	if m.teller == nil {
		return problem.Newf(problem.Unable, "the daemon's log says why", "no messages are sent")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-m.setup.Ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	return m.teller.do(ctx, func() { f(m.teller) })
}

// SetNotify changes the caller's rules, or makes a key. New rules are for what
// happens from now on.
func (m *Messages) SetNotify(ctx context.Context, c api.Caller, r api.NotifyRequest) (api.Notify, error) {
	reply, err := m.setNotify(ctx, c, r)
	m.setup.Queue.Note(c, "notify set", nil, "", err) // targets may be secret
	return reply, err
}

func (m *Messages) setNotify(ctx context.Context, c api.Caller, r api.NotifyRequest) (api.Notify, error) {
	var rules []string
	if r.Rules != nil {
		parsed, err := notify.ParseRules(*r.Rules)
		if err != nil {
			return api.Notify{}, badRule(err)
		}
		for _, one := range parsed {
			rules = append(rules, one.String())
		}
	}
	var now wish
	var stored error
	err := m.withTeller(ctx, func(t *teller) {
		if stored = t.catchUp(time.Now()); stored != nil {
			return
		}
		now, stored = m.wishes.set(m.store, c.UID, c.Name, func(w *wish) {
			if r.Rules != nil {
				w.Rules = rules
			}
			if r.NewKey {
				key := make([]byte, 32)
				_, _ = rand.Read(key) // never fails: the program would crash instead
				w.Key = key
			}
		})
	})
	if err := errors.Join(err, stored); err != nil {
		return api.Notify{}, err
	}
	reply := notifyOf(now, false)
	if r.NewKey {
		reply.Key = notifyOf(now, true).Key
	}
	return reply, nil
}

func badRule(err error) error {
	return problem.Newf(problem.Invalid, "berth help get-told lists the targets", "%v", err)
}

// maxTellJobs bounds how many jobs one message can be about.
const maxTellJobs = 10_000

// SendNotify sends a message now, or one about jobs that have ended.
func (m *Messages) SendNotify(ctx context.Context, c api.Caller, r api.NotifyTest) ([]api.NotifyResult, error) {
	results, err := m.sendNotify(ctx, c, r)
	m.setup.Queue.Note(c, "notify send", nil, "", err)
	return results, err
}

func (m *Messages) sendNotify(ctx context.Context, c api.Caller, r api.NotifyTest) ([]api.NotifyResult, error) {
	var targets []notify.Target
	for _, rule := range m.wishes.rules(c.UID, c.Name) {
		targets = append(targets, rule.Target)
	}
	if r.Target != "" {
		target, err := notify.ParseTarget(r.Target)
		if err != nil {
			return nil, badRule(err)
		}
		targets = []notify.Target{target}
	}
	switch {
	case len(targets) == 0:
		return nil, problem.Newf(problem.Refused, "berth notify set end:mailto:ann@example.org, or name a target", "you have set no targets")
	case len(r.Jobs) > maxTellJobs:
		return nil, problem.Newf(problem.TooMuch, "", "expected at most %d jobs, found %d", maxTellJobs, len(r.Jobs))
	case len(r.Jobs) > 0:
		return m.tellOf(ctx, c, targets, r.Jobs)
	}
	return m.test(ctx, c, targets), nil
}

// tellOf puts a message about jobs into the outbox.
func (m *Messages) tellOf(ctx context.Context, c api.Caller, targets []notify.Target, ids []string) (results []api.NotifyResult, err error) {
	var facts []notify.Fact
	for _, id := range ids {
		j, err := m.setup.Jobs.Find(ctx, c, id)
		if err != nil {
			return nil, err
		}
		if !j.State.Terminal() {
			return nil, problem.Newf(problem.Refused, "berth wait "+j.ID, "job %s has not ended", j.ID)
		}
		f := factOf(job.Event{At: j.EndedAt, Kind: job.EventEnded, Job: &j, Text: j.Detail}, notify.OnEnd)
		f.Whole = notify.Whole{} // the caller waited for exactly these
		facts = append(facts, f)
	}
	var stored error
	err = m.withTeller(ctx, func(t *teller) {
		for _, target := range targets {
			for _, f := range facts {
				t.add(c.UID, c.Name, target.String(), f, time.Now())
			}
			results = append(results, api.NotifyResult{Target: target.Shown()})
		}
		stored = t.write()
	})
	return results, errors.Join(err, stored)
}

// test sends a message to each target and waits for the answers.
func (m *Messages) test(ctx context.Context, c api.Caller, targets []notify.Target) []api.NotifyResult {
	ctx, cancel := context.WithTimeout(ctx, tellLimit)
	defer cancel()
	results := make([]api.NotifyResult, len(targets))
	var all sync.WaitGroup
	for i, target := range targets {
		results[i].Target = target.Shown()
		all.Go(func() {
			leave, err := m.tests.Enter(ctx)
			if err != nil {
				results[i].Error = "other test messages of yours were still on their way"
				return
			}
			defer leave()
			now := time.Now()
			var b notify.Batch
			b.Add(notify.Fact{At: now, Detail: "a test message from berth, sent for " + c.Name})
			msg := notify.Compose("test-"+strconv.FormatInt(now.UnixNano(), 36), host(), now, b)
			results[i].Error = m.deliver(ctx, c.UID, cmp.Or(c.Name, strconv.Itoa(c.UID)), target.String(), msg).Error
		})
	}
	all.Wait()
	return results
}
