-- Makes the part of a table that holds the month of `p_at`, if it is not there. Attached rather than created in
-- place, which would lock everybody else out of the table.
CREATE OR REPLACE FUNCTION month_ensure(p_table text, p_at timestamptz) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_month timestamp := date_trunc('month', p_at AT TIME ZONE 'UTC');
    v_name  text := p_table || to_char(v_month, '"_"YYYY"m"MM');
BEGIN
    IF p_table NOT IN ('ledger_postings', 'ledger_lines', 'usage_records') THEN
        RAISE EXCEPTION '% is not kept by month', p_table;
    END IF;
    IF to_regclass(v_name) IS NOT NULL THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('month:' || v_name, 0));
    -- Asked of the table itself: what the session remembers of names may be older than the lock.
    IF EXISTS (SELECT FROM pg_class WHERE relname = v_name AND relnamespace = 'public'::regnamespace) THEN
        RETURN;
    END IF;
    EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', v_name, p_table);
    EXECUTE format('COMMENT ON TABLE %I IS %L', v_name, 'tenant: append-only; a month of ' || p_table);
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', v_name);
    EXECUTE format('CREATE TRIGGER %I BEFORE TRUNCATE ON %I FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()',
        v_name || '_no_truncate', v_name);
    EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', p_table, v_name,
        v_month AT TIME ZONE 'UTC', (v_month + interval '1 month') AT TIME ZONE 'UTC');
END $$;
REVOKE ALL ON FUNCTION month_ensure FROM PUBLIC;
GRANT EXECUTE ON FUNCTION month_ensure TO gpuaas_system;
