-- The time of [p_from, p_to) for which a meter is or will be charged: since it was opened, until it was closed, without
-- the times for which it stood still or that were given back.
CREATE OR REPLACE FUNCTION meter_charged_times(p_meter uuid, p_from timestamptz, p_to timestamptz) RETURNS tstzmultirange
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT CASE WHEN w.first < w.last THEN tstzmultirange(tstzrange(w.first, w.last)) - coalesce((
            SELECT range_agg(tstzrange(p.since, greatest(coalesce(p.resumed_at, 'infinity'), p.since))) FROM meter_pauses p WHERE p.meter_id = p_meter
        ), '{}'::tstzmultirange) ELSE '{}'::tstzmultirange END
    FROM meters m, LATERAL (SELECT greatest(date_trunc('second', p_from), m.opened_at) AS first,
        least(date_trunc('second', p_to), m.closed_at) AS last) AS w
    WHERE m.id = p_meter AND m.opened_at IS NOT NULL
$$;
REVOKE ALL ON FUNCTION meter_charged_times FROM PUBLIC;
GRANT EXECUTE ON FUNCTION meter_charged_times TO gpuaas_system;
