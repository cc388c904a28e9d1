-- no-transaction
-- What an organization has launched and does not run yet: it counts when a launch is told how long the balance lasts.
CREATE INDEX CONCURRENTLY IF NOT EXISTS meters_starting ON meters (org_id) WHERE state = 'held';
