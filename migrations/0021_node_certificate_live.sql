-- no-transaction
-- One live certificate for each node.
CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS node_certificates_one_live ON node_certificates (node_id) WHERE revoked_at IS NULL;
