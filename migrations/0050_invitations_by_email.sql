-- no-transaction
-- Somebody who signed in sees who invited their address.
CREATE INDEX CONCURRENTLY IF NOT EXISTS invitations_pending_by_email ON invitations (lower(email)) WHERE state = 'pending';
