-- What is known of a recording apart from its objects, so that whoever can write to the object storage alone cannot rewrite it.
ALTER TABLE terminal_recordings
    -- SHA-256 of the last chunk that `chunks` counts.
    ADD COLUMN head bytea CHECK (octet_length(head) = 32),
    -- The code of what was found changed in the object storage. The first one stays.
    ADD COLUMN tampering text,
    -- The last attachment that has stored everything and writes no more. The next one waits for it.
    ADD COLUMN released_epoch bigint NOT NULL DEFAULT 0 CHECK (released_epoch >= 0),
    -- Sealing, and later deleting, is tried again after longer and longer times.
    ADD COLUMN attempts integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    ADD COLUMN next_attempt_at timestamptz;
