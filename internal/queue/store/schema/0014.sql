-- Where a job's long text is: the command, its arguments, variables and set-up.
-- NULL: in command and spec. '': no longer kept. Otherwise the hash of a blob,
-- so that a change of the job's state does not write its text again.
ALTER TABLE jobs ADD COLUMN text TEXT;
CREATE INDEX jobs_text ON jobs (text) WHERE text <> '';

-- In meta, a session has the public key of its
-- browser instead of the hash of a secret, and the listener that it was opened at
-- (key, listener). An older berth would drop both and keep a session that it
-- cannot check.
