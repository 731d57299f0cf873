package api

import "encoding/json"

func encodePage(p JobPage) []byte {
	data, err := json.Marshal(p)
	if err != nil {
		panic("bug: " + err.Error())
	}
	return append(data, '\n')
}
