-- no-transaction
-- A key is certified once: whoever renews makes a new one.
CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS node_certificates_key ON node_certificates (key_sha256) WHERE key_sha256 IS NOT NULL;
