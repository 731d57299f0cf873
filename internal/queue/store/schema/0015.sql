-- A job's spec has the jobs file that it is a line of (batch), and the key of such
-- a job counts what its block says of its directory and environment. An older berth
-- would take it for another line and run it again.

-- In what a job waits for, alt separates alternatives and delay_s is a time that has
-- to pass after a start. An older berth would wait for all of them, and start at once.
