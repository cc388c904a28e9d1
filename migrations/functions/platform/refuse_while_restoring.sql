-- Whoever would place, release, charge or have nodes work is refused here, also a process that has not noticed.
CREATE OR REPLACE FUNCTION refuse_while_restoring() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM installation WHERE mode = 'restore') THEN
        RAISE EXCEPTION 'the database was restored from a backup: % of % waits until an operator has resumed', TG_OP, TG_TABLE_NAME
            USING ERRCODE = 'GR001';
    END IF;
    RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION refuse_while_restoring FROM PUBLIC;

CREATE OR REPLACE TRIGGER allocations_restoring BEFORE INSERT ON allocations
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_while_restoring();
CREATE OR REPLACE TRIGGER capacity_claims_restoring BEFORE INSERT OR DELETE ON capacity_claims
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_while_restoring();
CREATE OR REPLACE TRIGGER saga_runs_restoring BEFORE INSERT ON saga_runs
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_while_restoring();
CREATE OR REPLACE TRIGGER node_tasks_restoring BEFORE INSERT ON node_tasks
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_while_restoring();
CREATE OR REPLACE TRIGGER meters_restoring BEFORE INSERT OR UPDATE ON meters
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_while_restoring();
CREATE OR REPLACE TRIGGER ledger_postings_restoring BEFORE INSERT ON ledger_postings
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_while_restoring();
