// Package series keeps the past: how much GPU memory each job and each GPU used
// over time, and how busy the GPUs were.
//
// A Book gets a set of readings after every sample, keeps a point every few
// seconds while they change, and writes them in the background to one file per
// hour. Files are thinned as they age, in a way that keeps every maximum (Thin),
// and all of them together have a bound.
//
// Nothing else depends on it. Record touches memory only; points that cannot be
// written are dropped; a damaged file is read as far as it goes. The package
// knows no job beyond its id and its owner's name, and decides nothing.
package series
