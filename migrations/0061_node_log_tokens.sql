-- Rights to follow a log of a node once. The grant for the node is sealed with the token itself, of which only the hash is here.
CREATE TABLE node_log_tokens (
    token_hash    bytea PRIMARY KEY,
    node_id       uuid NOT NULL REFERENCES nodes ON DELETE CASCADE,
    -- What its owner was signed in with: exactly one.
    account_session_id     uuid,
    service_account_key_id uuid,
    sealed_grant  bytea NOT NULL,
    created_at    timestamptz NOT NULL,
    expires_at    timestamptz NOT NULL,
    CONSTRAINT node_log_tokens_sign_in CHECK (num_nonnulls(account_session_id, service_account_key_id) = 1),
    CONSTRAINT node_log_tokens_short CHECK (expires_at <= created_at + interval '60 seconds')
);
CREATE INDEX node_log_tokens_by_node ON node_log_tokens (node_id);
CREATE INDEX node_log_tokens_by_expiry ON node_log_tokens (expires_at);
COMMENT ON TABLE node_log_tokens IS 'platform: rights of operators to follow a log of a node, each once';
GRANT SELECT, INSERT, DELETE ON node_log_tokens TO gpuaas_system;
