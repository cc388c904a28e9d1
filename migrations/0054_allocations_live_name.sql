-- no-transaction
-- Live allocations of one project have different names.
CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS allocations_live_name ON allocations (org_id, live_project_id, name)
    WHERE unique_name AND live_project_id IS NOT NULL;
