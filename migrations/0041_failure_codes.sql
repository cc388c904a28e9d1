-- Why a run, an attempt of a step or an allocation failed, as a stable code beside the text for people. Null where nothing
-- failed, and in rows of the release before.
ALTER TABLE saga_runs ADD COLUMN failure_code text;
ALTER TABLE saga_steps ADD COLUMN failure_code text;
ALTER TABLE allocations ADD COLUMN failure_code text;

-- Its columns change; it is made anew with the other functions.
DROP FUNCTION saga_timeline(text, integer);
