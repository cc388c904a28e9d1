-- Gives the next numbers to these statements, in this order; one transaction at a time does. What has a number already is left
-- out and leaves no gap. Answers how many were given.
CREATE OR REPLACE FUNCTION statement_numbers_issue(
    s_orgs uuid[], s_months date[], s_particulars jsonb[], p_issued_at timestamptz
) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_last   bigint;
    v_issued bigint;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('statement_numbers'));
    -- A statement of its own, which sees what was given while the lock was waited for.
    SELECT coalesce(max(number), 0) INTO v_last FROM statement_numbers;
    INSERT INTO statement_numbers (number, org_id, month, issued_at, particulars)
        SELECT v_last + row_number() OVER (ORDER BY s.place), s.org_id, s.month, p_issued_at, s.particulars
        FROM unnest(s_orgs, s_months, s_particulars) WITH ORDINALITY AS s (org_id, month, particulars, place)
        WHERE NOT EXISTS (SELECT FROM statement_numbers n WHERE n.org_id = s.org_id AND n.month = s.month);
    GET DIAGNOSTICS v_issued = ROW_COUNT;
    RETURN v_issued;
END $$;
REVOKE ALL ON FUNCTION statement_numbers_issue FROM PUBLIC;
GRANT EXECUTE ON FUNCTION statement_numbers_issue TO gpuaas_system;
