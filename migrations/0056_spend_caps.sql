-- What a service account may spend in a calendar month (UTC). A cap has no foreign key to its account: when the account is
-- deleted, the cap goes on ending what the account left running.
CREATE TABLE spend_caps (
    service_account_id uuid PRIMARY KEY,
    org_id             uuid NOT NULL,
    project_id         uuid NOT NULL,
    amount_minor       bigint NOT NULL CHECK (amount_minor > 0),
    -- The end of the ledger when the cap was set: what was spent before does not count.
    counted_from_seq   bigint NOT NULL,
    version            bigint NOT NULL DEFAULT 1,
    created_at         timestamptz NOT NULL,
    updated_at         timestamptz NOT NULL,
    CONSTRAINT spend_caps_project FOREIGN KEY (org_id, project_id) REFERENCES projects (org_id, id) ON DELETE CASCADE
);
CREATE INDEX spend_caps_by_org ON spend_caps (org_id, project_id);
COMMENT ON TABLE spend_caps IS 'tenant: what a service account may spend in a month';
ALTER TABLE spend_caps ENABLE ROW LEVEL SECURITY;
CREATE POLICY spend_caps_tenant ON spend_caps TO gpuaas_app USING (org_id = (SELECT current_org()));
CREATE POLICY spend_caps_system ON spend_caps TO gpuaas_system USING (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON spend_caps TO gpuaas_app;
GRANT SELECT ON spend_caps TO gpuaas_system;

-- How far the spending of the month was added up, so that adding up goes on from there.
CREATE TABLE spend_cap_progress (
    service_account_id uuid PRIMARY KEY REFERENCES spend_caps ON DELETE CASCADE,
    org_id             uuid NOT NULL,
    month              date NOT NULL,
    spent_minor        bigint NOT NULL,
    through_seq        bigint NOT NULL,
    -- When the cap was reached in this month.
    reached_at         timestamptz
);
CREATE INDEX spend_cap_progress_by_org ON spend_cap_progress (org_id);
COMMENT ON TABLE spend_cap_progress IS 'tenant: what service accounts with a spend cap have spent this month';
ALTER TABLE spend_cap_progress ENABLE ROW LEVEL SECURITY;
CREATE POLICY spend_cap_progress_tenant ON spend_cap_progress FOR SELECT TO gpuaas_app USING (org_id = (SELECT current_org()));
CREATE POLICY spend_cap_progress_system ON spend_cap_progress TO gpuaas_system USING (true);
GRANT SELECT ON spend_cap_progress TO gpuaas_app;
GRANT SELECT, INSERT, UPDATE ON spend_cap_progress TO gpuaas_system;
