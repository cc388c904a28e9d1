-- no-transaction
-- How many people an organization has invited within a day is bounded.
CREATE INDEX CONCURRENTLY IF NOT EXISTS invitations_by_time ON invitations (org_id, created_at);
