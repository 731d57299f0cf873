package api

import "time"

// Notify is what a user set about being told, and the messages that are not
// delivered.
type Notify struct {
	Rules    []string        `json:"rules" doc:"who is told about jobs without rules of their own: EVENTS:TARGET; without secrets, unless they are asked for"`
	Signed   bool            `json:"signed" doc:"there is a key, and webhooks are signed with it"`
	Key      string          `json:"key,omitempty" doc:"that key; only if secrets are asked for"`
	Messages []NotifyMessage `json:"messages" doc:"messages that gather, wait or were given up, oldest first"`
}

// NotifyMessage is a message that is not delivered.
type NotifyMessage struct {
	ID     string    `json:"id"`
	Target string    `json:"target"`
	Title  string    `json:"title"`
	Stage  string    `json:"state" doc:"gathering, waiting or given_up"`
	Since  time.Time `json:"since" doc:"when the first event happened; once given up, when that was"`
	Next   time.Time `json:"next" doc:"when it is sent; once given up, when it is forgotten"`
	Tries  int       `json:"tries" doc:"how many failed"`
	Error  string    `json:"error,omitempty" doc:"of the last one"`
}

// NotifyRequest changes what a user is told.
type NotifyRequest struct {
	Rules  *[]string `json:"rules,omitempty" doc:"replaces all rules: EVENTS:TARGET; left out: as they are"`
	NewKey bool      `json:"new_key,omitempty" doc:"makes a key for webhooks, in place of an older one; the reply has it"`
}

// NotifyTest asks for a message now.
type NotifyTest struct {
	Target string   `json:"target,omitempty" doc:"where to; left out: the targets of the caller's rules"`
	Jobs   []string `json:"jobs,omitempty" doc:"ids of jobs that have ended, which the message is about; it is then sent as other messages are, and tried again if it fails"`
}

// NotifyResult is what came of a message.
type NotifyResult struct {
	Target string `json:"target" doc:"without its secrets"`
	Error  string `json:"error,omitempty" doc:"why it was not delivered; left out: it was, or it will be"`
}

// NotifyQuery asks what a user set about being told.
type NotifyQuery struct {
	Secrets bool `query:"secrets" about:"whole targets, and the key of webhooks"`
}

// takes is how long the other side may take to answer.
func (*NotifyTest) takes() time.Duration { return 2 * time.Minute }
