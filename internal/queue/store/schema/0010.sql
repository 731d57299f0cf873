-- Messages that wait to be sent, or were given up: JSON (notify.Entry). The
-- counters event_taken and outbox_seq are the last event that messages were made
-- of, and the highest number of a message.
CREATE TABLE outbox (
	id   INTEGER PRIMARY KEY,
	data TEXT NOT NULL
) STRICT;
