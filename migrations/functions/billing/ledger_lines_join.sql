-- Lines join a posting only in the transaction that made it, so what was checked at its end stays true.
CREATE OR REPLACE FUNCTION ledger_lines_join() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_bad record;
BEGIN
    SELECT l.org_id, l.seq INTO v_bad FROM (SELECT DISTINCT org_id, seq, posted_at FROM new_lines) l
        WHERE NOT EXISTS (SELECT FROM ledger_postings p WHERE p.org_id = l.org_id AND p.seq = l.seq
            AND p.posted_at = l.posted_at AND p.xact = pg_current_xact_id()) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'ledger lines of % % have no posting in this transaction', v_bad.org_id, v_bad.seq
            USING ERRCODE = 'check_violation', CONSTRAINT = 'ledger_lines_join';
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER ledger_lines_join AFTER INSERT ON ledger_lines REFERENCING NEW TABLE AS new_lines
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_lines_join();
