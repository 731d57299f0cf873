// Package modelsize says how much GPU memory a model needs, from what its files
// say about it: the shape in config.json, and the tensors in the headers of
// safetensors or GGUF files. It never reads the weights.
//
// Anybody may have written the files of a model. Every count that a header claims is
// checked against the size of its file, and what is read is bounded, whatever
// the header claims.
//
// It is pure: it may not open a file. Start with estimate.go, then config.go,
// safetensors.go and gguf.go.
package modelsize
