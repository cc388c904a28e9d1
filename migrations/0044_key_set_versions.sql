-- Which version of the key set was sent to a machine, beside the text of the history.
ALTER TABLE allocation_events ADD COLUMN key_set_version bigint;
