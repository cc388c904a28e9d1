-- Which organizations have something to accrue, how much of it, and since when. Nothing is due that the
-- clock of the database has not reached.
CREATE OR REPLACE FUNCTION meters_due(p_target timestamptz) RETURNS TABLE (org_id uuid, due bigint, oldest timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT m.org_id, count(*), min(m.accrued_until)
    FROM meters m, (SELECT least(p_target, date_trunc('second', ledger_clock(p_target))) AS target OFFSET 0) AS clock
    WHERE m.state IN ('open', 'closed') AND ((m.state = 'open' AND m.accrued_until < clock.target) OR (m.state = 'closed' AND m.closed_at >= m.accrued_until))
    GROUP BY m.org_id
$$;
REVOKE ALL ON FUNCTION meters_due FROM PUBLIC;
GRANT EXECUTE ON FUNCTION meters_due TO gpuaas_system;
