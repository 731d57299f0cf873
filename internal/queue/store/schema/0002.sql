-- What many jobs share and none should carry: captured environments, each
-- stored once under the hash of its content. jobs.rest names it.
CREATE TABLE blobs (
	hash TEXT PRIMARY KEY,
	data BLOB NOT NULL
) STRICT, WITHOUT ROWID;
