-- Nearly every job is no line of a jobs file. Whether it is one is seen without parsing
-- its spec.
DROP INDEX jobs_batch;
CREATE INDEX jobs_batch ON jobs (spec ->> '$.batch', user, state) WHERE instr(spec, '"batch":');
