-- The jobs of a jobs file are counted whenever it is listed, however long the
-- history is.
CREATE INDEX jobs_batch ON jobs (spec ->> '$.batch', user, state) WHERE spec ->> '$.batch' IS NOT NULL;

-- An entry of the outbox has the jobs file whose ends it gathers. An older berth
-- would drop that and wait for an array without a number.
