-- Shells on nodes. A session outlives whoever is attached; what it printed is on its node only.
CREATE TABLE terminal_sessions (
    id               uuid PRIMARY KEY,
    org_id           uuid NOT NULL,
    project_id       uuid NOT NULL,
    allocation_id    uuid NOT NULL REFERENCES allocations,
    node_id          uuid NOT NULL,
    principal_kind   text NOT NULL CHECK (principal_kind IN ('user', 'service_account')),
    principal_id     uuid NOT NULL,
    created_at       timestamptz NOT NULL,
    -- The node ends it then, at the latest.
    expires_at       timestamptz NOT NULL,
    last_attached_at timestamptz,
    attachments      integer NOT NULL DEFAULT 0,
    ended_at         timestamptz,
    end_reason       text,
    exit_status      integer,
    -- The signed right to end it, and since when it is to be used; one gateway tries at a time.
    end_grant         bytea NOT NULL,
    end_asked_at      timestamptz,
    end_claimed_until timestamptz,
    CONSTRAINT terminal_sessions_project FOREIGN KEY (org_id, project_id) REFERENCES projects (org_id, id) ON DELETE CASCADE,
    CONSTRAINT terminal_sessions_end CHECK ((ended_at IS NULL) = (end_reason IS NULL))
);
CREATE INDEX terminal_sessions_by_allocation ON terminal_sessions (allocation_id, id);
CREATE INDEX terminal_sessions_by_org ON terminal_sessions (org_id, project_id);
CREATE INDEX terminal_sessions_open ON terminal_sessions (expires_at) WHERE ended_at IS NULL;
CREATE INDEX terminal_sessions_to_end ON terminal_sessions (end_asked_at) WHERE ended_at IS NULL AND end_asked_at IS NOT NULL;
CREATE INDEX terminal_sessions_ended ON terminal_sessions (ended_at) WHERE ended_at IS NOT NULL;
COMMENT ON TABLE terminal_sessions IS 'tenant: shells on machines, open and ended';
ALTER TABLE terminal_sessions ENABLE ROW LEVEL SECURITY;
CREATE POLICY terminal_sessions_tenant ON terminal_sessions TO gpuaas_app USING (org_id = (SELECT current_org()));
CREATE POLICY terminal_sessions_system ON terminal_sessions TO gpuaas_system USING (true);
GRANT SELECT, INSERT, UPDATE ON terminal_sessions TO gpuaas_app;
GRANT SELECT, UPDATE, DELETE ON terminal_sessions TO gpuaas_system;

-- Rights to connect once. The grant for the node is sealed with the token itself, of which only the hash is here.
CREATE TABLE terminal_tokens (
    token_hash    bytea PRIMARY KEY,
    org_id        uuid NOT NULL,
    project_id    uuid NOT NULL,
    allocation_id uuid NOT NULL,
    -- Which WebSocket takes it.
    kind          text NOT NULL CHECK (kind IN ('terminal', 'ssh')),
    session_id    uuid REFERENCES terminal_sessions ON DELETE CASCADE,
    -- What its owner was signed in with: exactly one.
    account_session_id     uuid,
    service_account_key_id uuid,
    sealed_grant  bytea NOT NULL,
    created_at    timestamptz NOT NULL,
    expires_at    timestamptz NOT NULL,
    CONSTRAINT terminal_tokens_session CHECK ((kind = 'terminal') = (session_id IS NOT NULL)),
    CONSTRAINT terminal_tokens_sign_in CHECK (num_nonnulls(account_session_id, service_account_key_id) = 1)
);
CREATE INDEX terminal_tokens_by_session ON terminal_tokens (session_id);
CREATE INDEX terminal_tokens_by_org ON terminal_tokens (org_id);
CREATE INDEX terminal_tokens_by_expiry ON terminal_tokens (expires_at);
COMMENT ON TABLE terminal_tokens IS 'tenant: rights to enter a machine, each once';
ALTER TABLE terminal_tokens ENABLE ROW LEVEL SECURITY;
CREATE POLICY terminal_tokens_tenant ON terminal_tokens TO gpuaas_app USING (org_id = (SELECT current_org()));
CREATE POLICY terminal_tokens_system ON terminal_tokens TO gpuaas_system USING (true);
GRANT SELECT, INSERT ON terminal_tokens TO gpuaas_app;
GRANT SELECT, DELETE ON terminal_tokens TO gpuaas_system;
