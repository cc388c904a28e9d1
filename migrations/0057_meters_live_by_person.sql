-- no-transaction
-- What a service account runs, for its spend cap; settled meters are not in it.
CREATE INDEX CONCURRENTLY IF NOT EXISTS meters_live_by_person ON meters (org_id, person_id)
    WHERE state IN ('held', 'open', 'paused', 'closed');
