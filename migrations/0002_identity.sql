-- Organizations, projects, people, memberships, invitations, keys, service accounts, sessions, policies.
-- Single writer: the `identity` crate.

CREATE TABLE users (
    id         uuid PRIMARY KEY,
    issuer     text        NOT NULL,
    subject    text        NOT NULL,
    email      text,
    name       text        NOT NULL,
    version    bigint      NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    UNIQUE (issuer, subject)
);
CREATE INDEX users_by_email ON users (lower(email));
COMMENT ON TABLE users IS 'person: somebody who signed in';

CREATE TABLE platform_bindings (
    user_id    uuid        NOT NULL REFERENCES users,
    role       text        NOT NULL CHECK (role IN ('platform_admin', 'platform_ops', 'platform_auditor')),
    created_at timestamptz NOT NULL,
    PRIMARY KEY (user_id, role)
);
COMMENT ON TABLE platform_bindings IS 'platform: who holds a platform role';

CREATE TABLE organizations (
    id           uuid PRIMARY KEY,
    kind         text        NOT NULL CHECK (kind IN ('personal', 'enterprise')),
    slug         text        NOT NULL UNIQUE,
    name         text        NOT NULL,
    suspended_at timestamptz,
    suspended_reason text,
    state        text        NOT NULL GENERATED ALWAYS AS (CASE WHEN suspended_at IS NULL THEN 'active' ELSE 'suspended' END) STORED,
    version      bigint      NOT NULL DEFAULT 1,
    created_at   timestamptz NOT NULL,
    updated_at   timestamptz NOT NULL,
    CHECK ((suspended_at IS NULL) = (suspended_reason IS NULL))
);
COMMENT ON TABLE organizations IS 'tenant: the billing and isolation boundary (its own id is the org)';

CREATE TABLE tenant_memberships (
    org_id     uuid        NOT NULL REFERENCES organizations,
    user_id    uuid        NOT NULL REFERENCES users,
    role       text        NOT NULL CHECK (role IN ('owner', 'admin', 'member', 'viewer')),
    version    bigint      NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (org_id, user_id)
);
CREATE INDEX tenant_memberships_by_user ON tenant_memberships (user_id);
COMMENT ON TABLE tenant_memberships IS 'tenant: who belongs to an organization, as what';

CREATE TABLE projects (
    id         uuid PRIMARY KEY,
    org_id     uuid        NOT NULL REFERENCES organizations,
    slug       text        NOT NULL,
    name       text        NOT NULL,
    version    bigint      NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    UNIQUE (org_id, slug),
    UNIQUE (org_id, id)
);
COMMENT ON TABLE projects IS 'tenant: where resources live';

CREATE TABLE project_memberships (
    org_id     uuid        NOT NULL,
    project_id uuid        NOT NULL,
    user_id    uuid        NOT NULL,
    role       text        NOT NULL CHECK (role IN ('owner', 'admin', 'member', 'viewer')),
    version    bigint      NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (project_id, user_id),
    FOREIGN KEY (org_id, project_id) REFERENCES projects (org_id, id) ON DELETE CASCADE,
    FOREIGN KEY (org_id, user_id) REFERENCES tenant_memberships ON DELETE CASCADE
);
CREATE INDEX project_memberships_by_user ON project_memberships (user_id);
CREATE INDEX project_memberships_by_org ON project_memberships (org_id, user_id);
COMMENT ON TABLE project_memberships IS 'tenant: who works in a project, as what; only members of its organization';

CREATE TABLE invitations (
    id          uuid PRIMARY KEY,
    org_id      uuid        NOT NULL REFERENCES organizations,
    email       text        NOT NULL,
    role        text        NOT NULL CHECK (role IN ('owner', 'admin', 'member', 'viewer')),
    state       text        NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'accepted', 'revoked', 'expired')),
    token_hash  bytea       NOT NULL UNIQUE,
    invited_by  uuid        NOT NULL,
    accepted_by uuid,
    expires_at  timestamptz NOT NULL,
    version     bigint      NOT NULL DEFAULT 1,
    created_at  timestamptz NOT NULL,
    updated_at  timestamptz NOT NULL,
    CHECK ((state = 'accepted') = (accepted_by IS NOT NULL))
);
CREATE INDEX invitations_by_org ON invitations (org_id, id);
CREATE UNIQUE INDEX invitations_one_pending ON invitations (org_id, lower(email)) WHERE state = 'pending';
COMMENT ON TABLE invitations IS 'tenant: an offer of membership';
INSERT INTO lifecycle_transitions VALUES
    ('invitation', 'pending', 'accepted'), ('invitation', 'pending', 'revoked'), ('invitation', 'pending', 'expired');
CREATE TRIGGER invitations_lifecycle BEFORE UPDATE OF state ON invitations
    FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('invitation');

CREATE TABLE service_accounts (
    id          uuid PRIMARY KEY,
    org_id      uuid        NOT NULL,
    project_id  uuid        NOT NULL,
    name        text        NOT NULL,
    disabled_at timestamptz,
    state       text        NOT NULL GENERATED ALWAYS AS (CASE WHEN disabled_at IS NULL THEN 'active' ELSE 'disabled' END) STORED,
    version     bigint      NOT NULL DEFAULT 1,
    created_at  timestamptz NOT NULL,
    updated_at  timestamptz NOT NULL,
    UNIQUE (project_id, name),
    UNIQUE (org_id, id),
    FOREIGN KEY (org_id, project_id) REFERENCES projects (org_id, id)
);
CREATE INDEX service_accounts_by_org ON service_accounts (org_id, project_id, id);
COMMENT ON TABLE service_accounts IS 'tenant: a machine identity of one project';

CREATE TABLE service_account_keys (
    id                 uuid PRIMARY KEY,
    org_id             uuid        NOT NULL,
    service_account_id uuid        NOT NULL,
    secret_hash        bytea       NOT NULL,
    expires_at         timestamptz,
    revoked_at         timestamptz,
    last_used_at       timestamptz,
    created_at         timestamptz NOT NULL,
    FOREIGN KEY (org_id, service_account_id) REFERENCES service_accounts (org_id, id) ON DELETE CASCADE
);
CREATE INDEX service_account_keys_by_account ON service_account_keys (service_account_id, id);
COMMENT ON TABLE service_account_keys IS 'tenant: keys of a service account, hashed';

CREATE TABLE user_ssh_keys (
    id          uuid PRIMARY KEY,
    user_id     uuid        NOT NULL REFERENCES users,
    name        text        NOT NULL,
    key_type    text        NOT NULL,
    fingerprint text        NOT NULL,
    public_key  text        NOT NULL,
    created_at  timestamptz NOT NULL,
    UNIQUE (user_id, fingerprint)
);
CREATE INDEX user_ssh_keys_by_user ON user_ssh_keys (user_id, id);
COMMENT ON TABLE user_ssh_keys IS 'person: public keys only';

CREATE TABLE account_sessions (
    id           uuid PRIMARY KEY,
    user_id      uuid        NOT NULL REFERENCES users,
    issuer       text        NOT NULL,
    issuer_sid   text        NOT NULL,
    client_id    text,
    user_agent   text,
    source_ip    text,
    created_at   timestamptz NOT NULL,
    last_seen_at timestamptz NOT NULL,
    expires_at   timestamptz NOT NULL,
    revoked_at   timestamptz,
    UNIQUE (issuer, issuer_sid)
);
CREATE INDEX account_sessions_by_user ON account_sessions (user_id, id);
COMMENT ON TABLE account_sessions IS 'person: where somebody is signed in; a revoked row denies its tokens';

CREATE TABLE policy_values (
    id         uuid PRIMARY KEY,
    scope      text        NOT NULL CHECK (scope IN ('global', 'org', 'project', 'user')),
    org_id     uuid        REFERENCES organizations,
    project_id uuid,
    user_id    uuid,
    key        text        NOT NULL,
    value      jsonb       NOT NULL,
    updated_by uuid        NOT NULL,
    version    bigint      NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    CHECK ((scope = 'global') = (org_id IS NULL)),
    CHECK ((scope = 'project') = (project_id IS NOT NULL)),
    CHECK ((scope = 'user') = (user_id IS NOT NULL)),
    FOREIGN KEY (org_id, project_id) REFERENCES projects (org_id, id) ON DELETE CASCADE,
    FOREIGN KEY (org_id, user_id) REFERENCES tenant_memberships ON DELETE CASCADE,
    UNIQUE NULLS NOT DISTINCT (org_id, project_id, user_id, key)
);
COMMENT ON TABLE policy_values IS 'tenant: policy values by scope; global ones have no org';

-- ── row-level security ───────────────────────────────────────────────────────────────────────────────
ALTER TABLE organizations ENABLE ROW LEVEL SECURITY;
ALTER TABLE tenant_memberships ENABLE ROW LEVEL SECURITY;
ALTER TABLE projects ENABLE ROW LEVEL SECURITY;
ALTER TABLE project_memberships ENABLE ROW LEVEL SECURITY;
ALTER TABLE invitations ENABLE ROW LEVEL SECURITY;
ALTER TABLE service_accounts ENABLE ROW LEVEL SECURITY;
ALTER TABLE service_account_keys ENABLE ROW LEVEL SECURITY;
ALTER TABLE policy_values ENABLE ROW LEVEL SECURITY;
ALTER TABLE users ENABLE ROW LEVEL SECURITY;
ALTER TABLE user_ssh_keys ENABLE ROW LEVEL SECURITY;
ALTER TABLE account_sessions ENABLE ROW LEVEL SECURITY;

CREATE POLICY tenant ON tenant_memberships TO gpuaas_app
    USING (org_id = (SELECT current_org()) OR user_id = (SELECT current_principal()))
    WITH CHECK (org_id = (SELECT current_org()));
CREATE POLICY tenant ON organizations TO gpuaas_app
    USING (id = (SELECT current_org())
        OR id IN (SELECT m.org_id FROM tenant_memberships m WHERE m.user_id = (SELECT current_principal())))
    WITH CHECK (id = (SELECT current_org()));
CREATE POLICY tenant ON projects TO gpuaas_app USING (org_id = (SELECT current_org()));
CREATE POLICY tenant ON project_memberships TO gpuaas_app USING (org_id = (SELECT current_org()));
CREATE POLICY tenant ON invitations TO gpuaas_app USING (org_id = (SELECT current_org()));
CREATE POLICY tenant ON service_accounts TO gpuaas_app USING (org_id = (SELECT current_org()));
CREATE POLICY tenant ON service_account_keys TO gpuaas_app USING (org_id = (SELECT current_org()));
CREATE POLICY tenant ON policy_values TO gpuaas_app USING (org_id = (SELECT current_org()));
CREATE POLICY global_values ON policy_values FOR SELECT TO gpuaas_app USING (scope = 'global');
CREATE POLICY person ON users TO gpuaas_app
    USING (id = (SELECT current_principal())
        OR id IN (SELECT m.user_id FROM tenant_memberships m WHERE m.org_id = (SELECT current_org())))
    WITH CHECK (id = (SELECT current_principal()));
CREATE POLICY person ON user_ssh_keys TO gpuaas_app USING (user_id = (SELECT current_principal()));
CREATE POLICY person ON account_sessions TO gpuaas_app USING (user_id = (SELECT current_principal()));

CREATE POLICY system ON organizations TO gpuaas_system USING (true);
CREATE POLICY system ON tenant_memberships TO gpuaas_system USING (true);
CREATE POLICY system ON projects TO gpuaas_system USING (true);
CREATE POLICY system ON project_memberships TO gpuaas_system USING (true);
CREATE POLICY system ON invitations TO gpuaas_system USING (true);
CREATE POLICY system ON service_accounts TO gpuaas_system USING (true);
CREATE POLICY system ON service_account_keys TO gpuaas_system USING (true);
CREATE POLICY system ON policy_values TO gpuaas_system USING (true);
CREATE POLICY system ON users TO gpuaas_system USING (true);
CREATE POLICY system ON user_ssh_keys TO gpuaas_system USING (true);
CREATE POLICY system ON account_sessions TO gpuaas_system USING (true);

GRANT SELECT, INSERT, UPDATE, DELETE ON tenant_memberships, projects, project_memberships, invitations,
    service_accounts, service_account_keys, policy_values, user_ssh_keys, account_sessions
    TO gpuaas_app, gpuaas_system;
-- Organizations and people are never deleted.
GRANT SELECT, INSERT, UPDATE ON organizations, users TO gpuaas_app, gpuaas_system;
GRANT SELECT, INSERT, DELETE ON platform_bindings TO gpuaas_system;
