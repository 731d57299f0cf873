package api

import (
	"cmp"
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"berth/internal/job/jobfile"
	"berth/internal/job/sweep"
	"berth/internal/tests/testkit"
	"berth/internal/text/problem"
)

// describedNow is the description as the table of endpoints gives it.
func describedNow(t *testing.T) []byte {
	t.Helper()
	data, err := json.MarshalIndent(describe("test"), "", "  ")
	testkit.Must(t, err)
	return append(data, '\n')
}

// example is what the description shows of an operation.
type example struct {
	request, reply any
	text           string // a reply that is not JSON
	headers        []*huma.Param
	replyHeaders   map[string]*huma.Param
}

// examples are all of them, by the operation's id.
var examples = map[string]example{
	Submit.ID:        {request: exampleSubmit, reply: exampleSubmitted},
	ListJobs.ID:      {reply: examplePage},
	GetJob.ID:        {reply: exampleDetail},
	GetWhy.ID:        {reply: exampleWhy},
	Act.ID:           {request: exampleAct, reply: exampleActed},
	EditJob.ID:       {request: exampleEdit, reply: exampleDetail},
	ListSnapshots.ID: {reply: exampleSnapshotIDs},
	ListBatches.ID:   {reply: exampleBatches},
	ListSweeps.ID:    {reply: []SweepSum{exampleSweep}},
	ListTrials.ID:    {reply: exampleTrials},
	AddTrials.ID:     {request: MoreTrials{Axes: []sweep.Axis{{Names: []string{"lr"}, Rows: [][]string{{"1e-5"}}}}}, reply: exampleAdded},
	WaitForJobs.ID:   {request: exampleWait, reply: exampleWaited},
	Adopt.ID:         {request: exampleAdopt, reply: exampleAdopted},
	ListStrays.ID:    {reply: []Stray{exampleStray}},
	AdoptStrays.ID:   {request: AdoptStraysRequest{Tokens: []string{exampleStray.Token}}, reply: []AdoptedStray{{Token: exampleStray.Token, Job: "17"}}},
	readLog.ID: {text: "epoch 1: loss 0.31\n", replyHeaders: map[string]*huma.Param{
		headerLogAttempt: {Description: "the attempt whose log this is", Schema: &huma.Schema{Type: huma.TypeInteger}},
		headerLogOffset:  {Description: "position of the first byte in the log", Schema: &huma.Schema{Type: huma.TypeInteger}},
	}},
	followEvents.ID: {text: exampleEventText, headers: []*huma.Param{
		{Name: "Last-Event-ID", In: "header", Description: "sent by browsers to resume; takes precedence over since", Schema: &huma.Schema{Type: huma.TypeString}},
	}},
	copyStore.ID:      {text: "SQLite format 3"},
	GetJobSamples.ID:  {reply: exampleSamples},
	GetGPUSamples.ID:  {reply: exampleGPUSamples},
	ListGroups.ID:     {reply: []Group{exampleGroup}},
	SetGroup.ID:       {request: GroupRequest{Limit: "2"}, reply: exampleGroup},
	GetNotify.ID:      {reply: exampleNotify},
	SetNotify.ID:      {request: NotifyRequest{Rules: &exampleNotify.Rules}, reply: exampleNotify},
	SendNotify.ID:     {request: NotifyTest{Target: "mailto:ann@example.org"}, reply: []NotifyResult{{Target: "mailto:ann@example.org"}}},
	ListGPUs.ID:       {reply: []GPU{exampleGPU}},
	PauseGPU.ID:       {reply: pausedGPU()},
	ResumeGPU.ID:      {reply: exampleGPU},
	DrainGPU.ID:       {request: exampleDrain, reply: exampleDrained()},
	SetHealth.ID:      {request: exampleHealth, reply: quarantinedGPU()},
	ListCardEvents.ID: {reply: []CardEvent{exampleCardEvent}},
	ReleaseGPUs.ID:    {request: exampleRelease, reply: exampleReleased},
	GetStatus.ID:      {reply: exampleStatus},
	GetStats.ID:       {reply: exampleStats},
	GetReplay.ID:      {reply: exampleReplay},
	Reload.ID:         {request: exampleReload, reply: exampleReloaded},
	GetSnapshot.ID:    {reply: exampleSnapshot},
	scrape.ID:         {text: "berth_jobs{state=\"queued\"} 3\n"},
	NewToken.ID:       {request: exampleTokenRequest, reply: exampleToken},
	ListTokens.ID:     {reply: []Token{withoutSecret(exampleToken)}},
	RevokeTokens.ID:   {reply: exampleRevoked},
	NewLogin.ID:       {request: exampleLoginRequest, reply: exampleLogin},
	OpenSession.ID:    {request: exampleSessionRequest, reply: exampleSession},
}

// describe builds the description. It takes some milliseconds and is requested
// too rarely to be cached.
func describe(version string) *huma.OpenAPI {
	schemas := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	document := &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{Title: "berth", Version: version,
			Description: "The daemon's API. On its Unix socket the kernel identifies the caller; over TCP every request needs a token. " +
				"Within /v1, keys may be added to replies, but none is renamed, removed or changes its type."},
		Components: &huma.Components{Schemas: schemas, SecuritySchemes: map[string]*huma.SecurityScheme{
			"token": {Type: "http", Scheme: "bearer", Description: "for TCP; the Unix socket needs none"},
		}},
		Security: []map[string][]string{{}, {"token": {}}},
	}
	for _, e := range endpoints() {
		if !e.op().Hidden {
			document.AddOperation(describeOperation(e, schemas))
		}
	}
	loosen(schemas)
	return document
}

func describeOperation(e operation, schemas huma.Registry) *huma.Operation {
	about := e.op()
	shown := examples[about.ID]
	request, _ := e.types()
	op := &huma.Operation{
		OperationID: about.ID, Method: about.Method, Path: about.Path, Tags: []string{about.Tag},
		Summary: about.Summary, Description: about.About,
		Responses: map[string]*huma.Response{},
	}
	for _, f := range urlFields(request) {
		op.Parameters = append(op.Parameters, describeParam(request, f))
	}
	op.Parameters = append(op.Parameters, shown.headers...)
	if about.Body != noBody {
		op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
			"application/json": {Schema: schemas.Schema(request, true, ""), Example: shown.request},
		}}
	}
	op.Responses[strconv.Itoa(cmp.Or(about.Status, http.StatusOK))] = describeReply(e, shown, schemas)
	for _, kind := range append([]problem.Kind{problem.Unable}, about.Problems...) {
		op.Responses[strconv.Itoa(statusOf(&problem.Problem{Kind: kind}))] = problemResponse(kind, schemas)
		if kind == problem.TooMuch && about.Body != noBody {
			op.Responses[strconv.Itoa(http.StatusRequestEntityTooLarge)] = problemResponse(kind, schemas)
		}
	}
	op.Responses[strconv.Itoa(http.StatusUnauthorized)] = problemResponse(problem.Forbidden, schemas)
	return op
}

// describeParam describes a field that is in the URL.
func describeParam(request reflect.Type, f urlField) *huma.Param {
	p := &huma.Param{Name: f.name, In: f.in, Description: f.about, Required: f.in == "path", Schema: &huma.Schema{}}
	t := request.FieldByIndex(f.index).Type
	if t.Kind() == reflect.Pointer && t != reflect.TypeFor[*time.Time]() {
		t = t.Elem()
	}
	switch t {
	case reflect.TypeFor[[]string]():
		p.Schema = &huma.Schema{Type: huma.TypeArray, Items: &huma.Schema{Type: huma.TypeString}}
	case reflect.TypeFor[*time.Time]():
		p.Schema = &huma.Schema{Type: huma.TypeString, Format: "date-time"}
	case reflect.TypeFor[bool]():
		p.Schema.Type = huma.TypeBoolean
	case reflect.TypeFor[int](), reflect.TypeFor[int64]():
		p.Schema.Type = huma.TypeInteger
	default:
		p.Schema.Type = huma.TypeString
	}
	if f.example == "" {
		return p
	}
	switch p.Schema.Type {
	case huma.TypeArray:
		p.Example = []string{f.example}
	case huma.TypeInteger:
		p.Example, _ = strconv.Atoi(f.example)
	default:
		p.Example = f.example
	}
	return p
}

func describeReply(e operation, shown example, schemas huma.Registry) *huma.Response {
	response := &huma.Response{Description: "Done.", Headers: shown.replyHeaders}
	_, reply := e.types()
	switch {
	case e.op().Media != "":
		response.Content = map[string]*huma.MediaType{e.op().Media: {Schema: &huma.Schema{Type: huma.TypeString}, Example: shown.text}}
	case e.op().Status == 0:
		schema := schemas.Schema(reflect.TypeOf(shown.reply), true, "")
		if reply != reflect.TypeOf(shown.reply) {
			panic("the example of " + e.op().ID + " is of another type than its replies")
		}
		schema.Nullable = false
		response.Content = map[string]*huma.MediaType{"application/json": {Schema: schema, Example: shown.reply}}
	}
	return response
}

// exampleProblems are one of each kind.
var exampleProblems = map[problem.Kind]*problem.Problem{
	problem.Invalid:   problem.Newf(problem.Invalid, "did you mean gpus?", `jobs[0]: there is no key "gpu"`),
	problem.Refused:   problem.Newf(problem.Refused, "lower gpus", "asks for 12 GPUs; this machine has 8"),
	problem.NotFound:  problem.Newf(problem.NotFound, "", "there is no job 99"),
	problem.Forbidden: problem.Newf(problem.Forbidden, "", "job 17 belongs to ann"),
	problem.TooMuch:   problem.Newf(problem.TooMuch, "end some of them first", "too many streams"),
	problem.Unable:    problem.Newf(problem.Unable, "free some space and try again", "the disk is full"),
}

func problemResponse(kind problem.Kind, schemas huma.Registry) *huma.Response {
	return &huma.Response{Description: "kind: " + string(kind), Content: map[string]*huma.MediaType{
		problemType: {Schema: schemas.Schema(reflect.TypeFor[problem.Problem](), true, ""), Example: exampleProblems[kind]},
	}}
}

// loosen corrects the generated schemas: replies may get new keys, requests may
// not have unknown ones, what Go writes as null may be null, and the keys of a
// job are described by the table of fields.
func loosen(schemas huma.Registry) {
	requests := []string{"Sweep", "MoreTrials", "SubmitRequest", "Spec", "ActRequest", "EditRequest", "WaitRequest", "Select", "TokenRequest"}
	for name, schema := range schemas.Map() {
		if schema.Type != huma.TypeObject {
			continue
		}
		if slices.Contains(requests, name) {
			schema.AdditionalProperties = false
		} else {
			schema.AdditionalProperties = nil
		}
		for key, property := range schema.Properties {
			switch {
			case key == "peak_vram_mib" || key == "gpu_ids" || key == "asked_ids" || key == "params":
				property.Nullable = true
			case property.Type == huma.TypeArray:
				property.Nullable = false // empty, or left out
			case (key == "slurm" || key == "checkpoints") && property.Ref != "": // a reference cannot be null
				inline := *schemas.SchemaFromRef(property.Ref)
				inline.Nullable, inline.AdditionalProperties = true, nil
				schema.Properties[key] = &inline
			}
		}
	}
	for _, field := range jobfile.Fields() {
		if property := schemas.Map()["Spec"].Properties[field.Key]; property != nil && property.Description == "" {
			property.Description = field.Help
		}
	}
	if kind := schemas.Map()["Problem"].Properties["kind"]; kind != nil {
		kind.Enum = []any{problem.Invalid, problem.Refused, problem.NotFound, problem.Forbidden, problem.TooMuch, problem.Unable}
	}
}

// Schema describes a Text: it may also be a number or a boolean.
func (Text) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{{Type: huma.TypeString}, {Type: huma.TypeNumber}, {Type: huma.TypeBoolean}}}
}

// Schema describes a Command: a shell line, or words.
func (Command) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{
		{Type: huma.TypeString},
		{Type: huma.TypeArray, Items: &huma.Schema{Type: huma.TypeString}},
	}}
}
