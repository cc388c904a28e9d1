-- Recordings of terminal sessions. Their content is in the object storage; this row says what there is, who may see it, and
-- which gateway writes. It does not decide whether a session is recorded: that is sealed with the token of whoever attaches.
CREATE TABLE terminal_recordings (
    session_id     uuid PRIMARY KEY,
    org_id         uuid NOT NULL,
    project_id     uuid NOT NULL,
    allocation_id  uuid NOT NULL REFERENCES allocations,
    principal_kind text NOT NULL CHECK (principal_kind IN ('user', 'service_account')),
    principal_id   uuid NOT NULL,
    mode           text NOT NULL CHECK (mode IN ('output', 'output_and_input')),
    started_at     timestamptz NOT NULL,
    -- Counts attachments that write. Of two gateways only the last one writes.
    epoch          bigint NOT NULL DEFAULT 1,
    -- As far as was noted: the object storage may have a few more.
    chunks         bigint NOT NULL DEFAULT 0,
    end_sequence   bigint NOT NULL DEFAULT 0,
    bytes          bigint NOT NULL DEFAULT 0,
    sealed_at      timestamptz,
    complete       boolean,
    -- The objects are deleted then.
    expires_at     timestamptz NOT NULL,
    deleted_at     timestamptz,
    CONSTRAINT terminal_recordings_seal CHECK ((sealed_at IS NULL) = (complete IS NULL)),
    CONSTRAINT terminal_recordings_counts CHECK (epoch > 0 AND chunks >= 0 AND end_sequence >= 0 AND bytes >= 0)
);
CREATE INDEX terminal_recordings_by_allocation ON terminal_recordings (allocation_id, session_id);
CREATE INDEX terminal_recordings_by_org ON terminal_recordings (org_id, project_id);
CREATE INDEX terminal_recordings_unsealed ON terminal_recordings (session_id) WHERE sealed_at IS NULL;
CREATE INDEX terminal_recordings_by_expiry ON terminal_recordings (expires_at) WHERE deleted_at IS NULL;
CREATE INDEX terminal_recordings_deleted ON terminal_recordings (deleted_at) WHERE deleted_at IS NOT NULL;
COMMENT ON TABLE terminal_recordings IS 'tenant: recordings of terminal sessions';
ALTER TABLE terminal_recordings ENABLE ROW LEVEL SECURITY;
CREATE POLICY terminal_recordings_tenant ON terminal_recordings TO gpuaas_app USING (org_id = (SELECT current_org()));
CREATE POLICY terminal_recordings_system ON terminal_recordings TO gpuaas_system USING (true);
GRANT SELECT ON terminal_recordings TO gpuaas_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON terminal_recordings TO gpuaas_system;

-- Each time somebody looks at a recording. The audit trail has it too, for longer.
CREATE TABLE terminal_recording_views (
    id             uuid PRIMARY KEY,
    org_id         uuid NOT NULL,
    session_id     uuid NOT NULL REFERENCES terminal_recordings ON DELETE CASCADE,
    principal_kind text NOT NULL CHECK (principal_kind IN ('user', 'service_account')),
    principal_id   uuid NOT NULL,
    created_at     timestamptz NOT NULL,
    expires_at     timestamptz NOT NULL
);
CREATE INDEX terminal_recording_views_by_session ON terminal_recording_views (session_id);
CREATE INDEX terminal_recording_views_by_org ON terminal_recording_views (org_id);
CREATE INDEX terminal_recording_views_by_expiry ON terminal_recording_views (expires_at);
COMMENT ON TABLE terminal_recording_views IS 'tenant: rights to read the chunks of a recording, each recorded in the audit trail';
ALTER TABLE terminal_recording_views ENABLE ROW LEVEL SECURITY;
CREATE POLICY terminal_recording_views_tenant ON terminal_recording_views TO gpuaas_app USING (org_id = (SELECT current_org()));
CREATE POLICY terminal_recording_views_system ON terminal_recording_views TO gpuaas_system USING (true);
GRANT SELECT, INSERT ON terminal_recording_views TO gpuaas_app;
GRANT SELECT, DELETE ON terminal_recording_views TO gpuaas_system;
