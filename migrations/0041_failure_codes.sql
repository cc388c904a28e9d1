-- Why a run failed, as a stable code beside the text for people. Null where nothing failed, and in rows of the release before.
ALTER TABLE saga_runs ADD COLUMN failure_code text;
