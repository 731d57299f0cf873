package api

// Group is a named set of one user's jobs, which can be limited and paused
// together.
type Group struct {
	Name     string `json:"name"`
	User     string `json:"user"`
	Limit    *int   `json:"limit" doc:"how many of its jobs may run at a time; null: no limit"`
	Running  int    `json:"running" doc:"its running jobs"`
	Queued   int    `json:"queued" doc:"its queued jobs"`
	Paused   bool   `json:"paused" doc:"none of its jobs starts"`
	PausedBy string `json:"paused_by,omitempty" doc:"the user who paused it"`
}

// GroupQuery selects groups.
type GroupQuery struct {
	User string `query:"user" about:"whose groups; *: every user's"`
}

// GroupName names a group.
type GroupName struct {
	Name string `path:"name" json:"-" eg:"io" about:"the name of the group"`
}

// GroupRequest changes a group. A group needs no creation: it is there once it is
// limited or paused, or has a job.
type GroupRequest struct {
	GroupName
	User   string `json:"user,omitempty" doc:"whose group; only administrators may name another user"`
	Limit  Text   `json:"limit,omitempty" doc:"how many of its jobs may run at a time, or none; left out: as it is"`
	Paused *bool  `json:"paused,omitempty" doc:"true: none of its jobs starts, false: they may; left out: as it is"`
}

// GroupRemoval removes a group; an empty user is the caller.
type GroupRemoval struct {
	GroupName
	User string `query:"user" about:"whose group; only administrators may name another user"`
}
