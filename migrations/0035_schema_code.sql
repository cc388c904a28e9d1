-- Functions, triggers and views live in migrations/functions, one file each, and are applied after the numbered migrations
-- (`pg::schema_code`). This table says which were applied: the last row by migration and revision. Only the owner uses it.
CREATE TABLE schema_code (
    -- The highest migration of the program that applied them, and the revision of the files.
    migration  bigint      NOT NULL,
    revision   bigint      NOT NULL,
    sha256     bytea       NOT NULL CHECK (length(sha256) = 32),
    applied_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (migration, revision)
);
COMMENT ON TABLE schema_code IS 'platform: which functions, triggers and views were applied, and when';
