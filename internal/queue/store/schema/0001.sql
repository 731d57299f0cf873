-- A job as it stands. The columns are what is searched, sorted by or changed
-- most; spec and rest are JSON and hold everything else (the name, for one,
-- is spec ->> '$.name'). command is the shell line, or NULL
-- for a job that has words instead; command_hash is of either.
CREATE TABLE jobs (
	seq          INTEGER PRIMARY KEY,
	id           TEXT    NOT NULL UNIQUE,
	key          TEXT    NOT NULL,
	user         TEXT    NOT NULL,
	state        TEXT    NOT NULL DEFAULT 'queued',
	outcome      TEXT    NOT NULL DEFAULT '',
	rank         INTEGER NOT NULL,
	attempt      INTEGER NOT NULL DEFAULT 0,
	vram_mib     INTEGER NOT NULL,
	peak_mib     INTEGER NOT NULL DEFAULT 0, -- the highest of its cards; 0: not measured
	submitted_at INTEGER NOT NULL,           -- nanoseconds since 1970; 0: not yet
	started_at   INTEGER NOT NULL DEFAULT 0,
	ended_at     INTEGER NOT NULL DEFAULT 0,
	command_hash INTEGER NOT NULL,
	command      TEXT,
	spec         TEXT    NOT NULL,
	rest         TEXT    NOT NULL DEFAULT '{}'
) STRICT;

CREATE INDEX jobs_peak ON jobs (command_hash, peak_mib) WHERE peak_mib > 0;

CREATE TABLE events (
	seq  INTEGER PRIMARY KEY,
	at   INTEGER NOT NULL,
	kind TEXT    NOT NULL,
	text TEXT    NOT NULL,
	job  TEXT -- the job at that moment, JSON; NULL: about berth itself
) STRICT;

-- The highest numbers ever given out, kept where rows that held them are gone.
CREATE TABLE counters (
	name  TEXT PRIMARY KEY,
	value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE meta (
	key   TEXT PRIMARY KEY,
	value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
