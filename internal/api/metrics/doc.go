// Package metrics counts what a daemon does and shows it in Prometheus's text
// format. Counters and histograms grow as the daemon tells of events; what changes
// by itself (the queue, the cards) is read once for each scrape.
//
// It may not ask the engine, know a caller, or label a series with anything that
// users can make many of: ids, names and commands of jobs. Every metric is in
// docs/reference/metrics.md, which a test compares with this package.
package metrics
