package api

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"net/http"
)

// description is the description of the API, without the version of the program. A
// test writes it from the table of endpoints (openapi_test.go), so that the program
// needs nothing that describes types.
//
//go:embed openapi.json
var description []byte

// openAPI is the description of this version of the program.
func openAPI(version string) []byte {
	quoted, err := json.Marshal(version)
	if err != nil {
		panic("bug: a string cannot be encoded: " + err.Error())
	}
	return bytes.Replace(description, []byte(`"version": "test"`), append([]byte(`"version": `), quoted...), 1)
}

// sendOpenAPI answers with the description. JSON is YAML, too.
func sendOpenAPI(x *exchange) error {
	if err := x.read(&None{}); err != nil {
		return err
	}
	media := "application/json"
	if x.op == &describeYAML.Operation {
		media = "application/yaml"
	}
	x.send(http.StatusOK, media, openAPI(x.options.Version))
	return nil
}
