-- Functions, triggers and views live in migrations/functions, one file each, and are applied after the numbered migrations when
-- they changed (`pg::schema_code`). These tables say what was applied. Only the owner reads and writes them.
CREATE TABLE schema_code (
    path   text  PRIMARY KEY,
    sha256 bytea NOT NULL CHECK (length(sha256) = 32)
);
COMMENT ON TABLE schema_code IS 'platform: the files of functions, triggers and views that are applied, each with its digest';

CREATE TABLE schema_code_sets (
    -- In which order they were applied. A program whose set is not the last one, but was applied before, is the older one.
    seq        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sha256     bytea       NOT NULL UNIQUE CHECK (length(sha256) = 32),
    applied_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE schema_code_sets IS 'platform: every set of those files that was ever applied, in order';
