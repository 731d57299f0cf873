package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"berth/internal/job/jobfile"
	"berth/internal/text/problem"
)

// doc describes an operation.
type doc struct {
	id, tag, summary, about string
	params, headers         []param
	request, reply          any    // examples, whose types are the schemas
	media, text             string // a reply that is not JSON, and an example of it
	status                  int    // of a reply without a body
	kinds                   []problem.Kind
	hidden                  bool
}

// param is a parameter or a header.
type param struct {
	name, in, kind, about string
	example               any
}

// openAPI is the description of the API, as JSON.
func openAPI(version string) ([]byte, error) {
	data, err := json.MarshalIndent(describe(version), "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the description of the API: %w", err)
	}
	return append(data, '\n'), nil
}

func (x *exchange) getOpenAPI() error {
	data, err := openAPI(x.options.Version)
	if err != nil {
		return err
	}
	x.send(http.StatusOK, "application/json", data)
	return nil
}

func (x *exchange) getOpenAPIYAML() error {
	data, err := describe(x.options.Version).YAML()
	if err != nil {
		return fmt.Errorf("write the description of the API: %w", err)
	}
	x.send(http.StatusOK, "application/yaml", data)
	return nil
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
	for _, r := range operations() {
		if !r.doc.hidden {
			document.AddOperation(operation(r, schemas))
		}
	}
	loosen(schemas)
	return document
}

func operation(r route, schemas huma.Registry) *huma.Operation {
	op := &huma.Operation{
		OperationID: r.doc.id, Method: r.method, Path: r.path, Tags: []string{r.doc.tag},
		Summary: r.doc.summary, Description: r.doc.about,
		Responses: map[string]*huma.Response{},
	}
	for _, p := range r.doc.params {
		op.Parameters = append(op.Parameters, &huma.Param{
			Name: p.name, In: p.in, Description: p.about, Required: p.in == "path",
			Schema: p.schema(), Example: p.example,
		})
	}
	if r.doc.request != nil {
		op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
			"application/json": {Schema: schemas.Schema(reflect.TypeOf(r.doc.request), true, ""), Example: r.doc.request},
		}}
	}
	op.Responses[strconv.Itoa(r.doc.success())] = r.doc.response(schemas)
	for _, kind := range append([]problem.Kind{problem.Unable}, r.doc.kinds...) {
		op.Responses[strconv.Itoa(statusOf(&problem.Problem{Kind: kind}))] = problemResponse(kind, schemas)
		if kind == problem.TooMuch && r.body {
			op.Responses[strconv.Itoa(http.StatusRequestEntityTooLarge)] = problemResponse(kind, schemas)
		}
	}
	op.Responses[strconv.Itoa(http.StatusUnauthorized)] = problemResponse(problem.Forbidden, schemas)
	return op
}

func (d doc) success() int {
	if d.status != 0 {
		return d.status
	}
	return http.StatusOK
}

func (d doc) response(schemas huma.Registry) *huma.Response {
	response := &huma.Response{Description: "Done."}
	switch {
	case d.reply != nil:
		schema := schemas.Schema(reflect.TypeOf(d.reply), true, "")
		schema.Nullable = false
		response.Content = map[string]*huma.MediaType{"application/json": {Schema: schema, Example: d.reply}}
	case d.media != "":
		response.Content = map[string]*huma.MediaType{d.media: {Schema: &huma.Schema{Type: huma.TypeString}, Example: d.text}}
	}
	for _, h := range d.headers {
		if response.Headers == nil {
			response.Headers = map[string]*huma.Param{}
		}
		response.Headers[h.name] = &huma.Param{Description: h.about, Schema: h.schema()}
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

func (p param) schema() *huma.Schema {
	switch p.kind {
	case "list":
		return &huma.Schema{Type: huma.TypeArray, Items: &huma.Schema{Type: huma.TypeString}}
	case "time":
		return &huma.Schema{Type: huma.TypeString, Format: "date-time"}
	}
	return &huma.Schema{Type: p.kind}
}

// loosen corrects the generated schemas: replies may get new keys, requests may
// not have unknown ones, what Go writes as null may be null, and the keys of a
// job are described by the table of fields.
func loosen(schemas huma.Registry) {
	requests := []string{"SubmitRequest", "Spec", "ActRequest", "EditRequest", "WaitRequest", "Select", "TokenRequest"}
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
			case key == "peak_vram_mib" || key == "gpu_ids" || key == "asked_ids":
				property.Nullable = true
			case property.Type == huma.TypeArray:
				property.Nullable = false // empty, or left out
			case key == "slurm" && property.Ref != "": // a reference cannot be null
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
