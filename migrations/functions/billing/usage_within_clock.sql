-- Use is charged after it happened, by whatever function: the last resort behind those that clamp their times.
CREATE OR REPLACE FUNCTION usage_within_clock() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_last timestamptz;
BEGIN
    SELECT max(window_end) INTO v_last FROM new_usage WHERE kind = 'usage';
    IF v_last > ledger_clock(v_last) THEN
        RAISE EXCEPTION 'use up to % is in the future', v_last
            USING ERRCODE = 'check_violation', CONSTRAINT = 'usage_within_clock';
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER usage_within_clock AFTER INSERT ON usage_records REFERENCING NEW TABLE AS new_usage
    FOR EACH STATEMENT EXECUTE FUNCTION usage_within_clock();
