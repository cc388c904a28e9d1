-- The fleet: regions, pools, nodes, and what they prove and are made of. Single writer: the `fleet` crate, as
-- gpuaas_system, in platform scope.

-- ── nodes act too ────────────────────────────────────────────────────────────────────────────────────
-- expand/contract: the checks are widened; what the last release writes still fits
ALTER TABLE audit_logs DROP CONSTRAINT audit_logs_actor_kind_check;
-- expand/contract: the checks are widened; what the last release writes still fits
ALTER TABLE audit_logs DROP CONSTRAINT audit_logs_check1;
ALTER TABLE audit_logs ADD CONSTRAINT audit_logs_actor_kind_check
    CHECK (actor_kind IN ('user', 'service_account', 'node', 'system', 'anonymous')) NOT VALID;
ALTER TABLE audit_logs ADD CONSTRAINT audit_logs_actor_id_check
    CHECK ((actor_kind IN ('user', 'service_account', 'node')) = (actor_id IS NOT NULL)) NOT VALID;

-- ── places ───────────────────────────────────────────────────────────────────────────────────────────
CREATE TABLE regions (
    code       text PRIMARY KEY CHECK (code ~ '^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$'),
    name       text        NOT NULL,
    version    bigint      NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL
);
COMMENT ON TABLE regions IS 'platform: where nodes stand';
GRANT SELECT, INSERT, UPDATE, DELETE ON regions TO gpuaas_system;

CREATE TABLE node_pools (
    id          uuid PRIMARY KEY,
    region      text        NOT NULL REFERENCES regions,
    name        text        NOT NULL,
    description text        NOT NULL DEFAULT '',
    version     bigint      NOT NULL DEFAULT 1,
    created_at  timestamptz NOT NULL,
    updated_at  timestamptz NOT NULL,
    CONSTRAINT node_pools_name UNIQUE (region, name)
);
COMMENT ON TABLE node_pools IS 'platform: groups of nodes within a region';
GRANT SELECT, INSERT, UPDATE, DELETE ON node_pools TO gpuaas_system;

-- ── nodes ────────────────────────────────────────────────────────────────────────────────────────────
CREATE TABLE nodes (
    id               uuid PRIMARY KEY,
    hostname         text        NOT NULL,
    region           text        NOT NULL REFERENCES regions,
    pool_id          uuid REFERENCES node_pools,
    labels           jsonb       NOT NULL DEFAULT '{}',
    sku_eligibility  text[]      NOT NULL DEFAULT '{}',
    simulated        boolean     NOT NULL DEFAULT false,
    state            text        NOT NULL DEFAULT 'bootstrap_issued',
    state_reason     text        NOT NULL DEFAULT '',
    state_changed_at timestamptz NOT NULL,
    -- Set while no new work may be placed here, whatever the state.
    cordon_reason    text,
    -- What the node should have applied; it reports what it has.
    desired_version  bigint      NOT NULL DEFAULT 0,
    enrolled_at      timestamptz,
    version          bigint      NOT NULL DEFAULT 1,
    created_at       timestamptz NOT NULL,
    updated_at       timestamptz NOT NULL
);
CREATE UNIQUE INDEX nodes_hostname ON nodes (hostname) WHERE state <> 'deleted';
CREATE INDEX nodes_by_state ON nodes (state, id);
CREATE INDEX nodes_by_region ON nodes (region, id);
CREATE INDEX nodes_by_label ON nodes USING gin (labels jsonb_path_ops);
CREATE INDEX nodes_by_pool ON nodes (pool_id) WHERE pool_id IS NOT NULL;
COMMENT ON TABLE nodes IS 'platform: servers of the fleet';
GRANT SELECT, INSERT, UPDATE ON nodes TO gpuaas_system;

INSERT INTO lifecycle_transitions VALUES
    ('node', 'bootstrap_issued', 'enrolling'), ('node', 'bootstrap_issued', 'removing'),
    ('node', 'enrolling', 'active'), ('node', 'enrolling', 'quarantined'), ('node', 'enrolling', 'removing'),
    ('node', 'active', 'offline'), ('node', 'offline', 'active'),
    ('node', 'active', 'quarantined'), ('node', 'offline', 'quarantined'),
    ('node', 'quarantined', 'active'), ('node', 'quarantined', 'draining'),
    ('node', 'active', 'draining'), ('node', 'offline', 'draining'), ('node', 'draining', 'active'),
    ('node', 'draining', 'retired'), ('node', 'retired', 'removing'), ('node', 'removing', 'deleted');
CREATE TRIGGER nodes_lifecycle BEFORE UPDATE OF state ON nodes
    FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('node');

CREATE TABLE node_history (
    node_id        uuid        NOT NULL REFERENCES nodes,
    seq            bigint GENERATED ALWAYS AS IDENTITY,
    at             timestamptz NOT NULL,
    from_state     text        NOT NULL,
    to_state       text        NOT NULL,
    event          text        NOT NULL,
    reason         text        NOT NULL,
    actor_kind     text        NOT NULL,
    actor_id       uuid,
    correlation_id uuid        NOT NULL,
    PRIMARY KEY (node_id, seq)
);
COMMENT ON TABLE node_history IS 'platform: every change of a node''s state';
GRANT SELECT, INSERT ON node_history TO gpuaas_system;
CREATE TRIGGER node_history_append_only BEFORE UPDATE OR DELETE ON node_history FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- What nodes say of themselves, many times a minute: narrow, without indexes beyond the key, with room on
-- each page so that an update stays there.
CREATE TABLE node_contacts (
    node_id                uuid PRIMARY KEY REFERENCES nodes,
    first_seen_at          timestamptz NOT NULL,
    last_seen_at           timestamptz NOT NULL,
    agent_version          text        NOT NULL,
    contract               text        NOT NULL,
    certificate_expires_at timestamptz,
    applied_version        bigint      NOT NULL DEFAULT 0,
    -- The newest trust that the node has taken over.
    keyset_serial          bigint      NOT NULL DEFAULT 0,
    authority_ids          uuid[]      NOT NULL DEFAULT '{}',
    clock_offset_ms        bigint      NOT NULL DEFAULT 0,
    boot_id                text        NOT NULL DEFAULT '',
    metrics                jsonb       NOT NULL DEFAULT '{}',
    inventory              jsonb       NOT NULL DEFAULT '{}'
) WITH (fillfactor = 60);
COMMENT ON TABLE node_contacts IS 'platform: the last report of each node';
GRANT SELECT, INSERT, UPDATE, DELETE ON node_contacts TO gpuaas_system;

-- ── onboarding ───────────────────────────────────────────────────────────────────────────────────────
CREATE TABLE node_onboardings (
    node_id    uuid PRIMARY KEY REFERENCES nodes,
    state      text        NOT NULL DEFAULT 'waiting_for_agent',
    detail     text        NOT NULL DEFAULT '',
    task_id    uuid,
    version    bigint      NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL
);
COMMENT ON TABLE node_onboardings IS 'platform: how far a new node has come';
GRANT SELECT, INSERT, UPDATE ON node_onboardings TO gpuaas_system;
INSERT INTO lifecycle_transitions VALUES
    ('node_onboarding', 'waiting_for_agent', 'discovering'),
    ('node_onboarding', 'discovering', 'awaiting_approval'), ('node_onboarding', 'discovering', 'failed'),
    ('node_onboarding', 'awaiting_approval', 'validating'), ('node_onboarding', 'awaiting_approval', 'discovering'),
    ('node_onboarding', 'validating', 'done'), ('node_onboarding', 'validating', 'failed'),
    ('node_onboarding', 'failed', 'discovering'), ('node_onboarding', 'failed', 'validating');
CREATE TRIGGER node_onboardings_lifecycle BEFORE UPDATE OF state ON node_onboardings
    FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('node_onboarding');

CREATE TABLE node_tokens (
    id         uuid PRIMARY KEY,
    node_id    uuid        NOT NULL REFERENCES nodes,
    purpose    text        NOT NULL CHECK (purpose IN ('bootstrap', 'repair')),
    token_hash bytea       NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    used_at    timestamptz,
    revoked_at timestamptz,
    CONSTRAINT node_tokens_hash UNIQUE (token_hash),
    CHECK (expires_at <= created_at + interval '15 minutes')
);
CREATE UNIQUE INDEX node_tokens_one_open ON node_tokens (node_id) WHERE used_at IS NULL AND revoked_at IS NULL;
COMMENT ON TABLE node_tokens IS 'platform: hashes of bootstrap and repair tokens, each for one node and one use';
GRANT SELECT, INSERT, UPDATE, DELETE ON node_tokens TO gpuaas_system;

CREATE TABLE node_certificates (
    serial       text PRIMARY KEY,
    node_id      uuid        NOT NULL REFERENCES nodes,
    authority_id uuid        NOT NULL,
    fingerprint  bytea       NOT NULL,
    not_before   timestamptz NOT NULL,
    not_after    timestamptz NOT NULL,
    revoked_at   timestamptz,
    reason       text,
    created_at   timestamptz NOT NULL,
    CHECK ((revoked_at IS NULL) = (reason IS NULL))
);
CREATE INDEX node_certificates_by_node ON node_certificates (node_id, not_after DESC);
CREATE INDEX node_certificates_revoked ON node_certificates (not_after) WHERE revoked_at IS NOT NULL;
COMMENT ON TABLE node_certificates IS 'platform: certificates that were given to nodes';
GRANT SELECT, INSERT, UPDATE, DELETE ON node_certificates TO gpuaas_system;

-- ── discovery ────────────────────────────────────────────────────────────────────────────────────────
CREATE TABLE node_topologies (
    node_id       uuid PRIMARY KEY REFERENCES nodes,
    task_id       uuid        NOT NULL,
    topology      jsonb       NOT NULL,
    discovered_at timestamptz NOT NULL
);
COMMENT ON TABLE node_topologies IS 'platform: what the last discovery found on a node';
GRANT SELECT, INSERT, UPDATE, DELETE ON node_topologies TO gpuaas_system;

CREATE TABLE node_resource_slots (
    id            uuid PRIMARY KEY,
    node_id       uuid        NOT NULL REFERENCES nodes,
    slot_index    integer     NOT NULL CHECK (slot_index >= 0),
    kind          text        NOT NULL CHECK (kind IN ('gpu', 'cpu')),
    state         text        NOT NULL DEFAULT 'discovered',
    pci_address   text,
    model         text        NOT NULL DEFAULT '',
    iommu_group   integer,
    nvme_device   text,
    numa_node     integer,
    fabric_mode   text        NOT NULL DEFAULT 'none' CHECK (fabric_mode IN ('none', 'vf')),
    fabric_vf     text,
    mac_address   text,
    private_ip    text,
    sku           text,
    health        text        NOT NULL DEFAULT 'unknown' CHECK (health IN ('unknown', 'healthy', 'degraded', 'failed')),
    blockers      jsonb       NOT NULL DEFAULT '[]',
    version       bigint      NOT NULL DEFAULT 1,
    created_at    timestamptz NOT NULL,
    updated_at    timestamptz NOT NULL,
    CONSTRAINT node_resource_slots_place UNIQUE (node_id, slot_index),
    CHECK ((fabric_mode = 'vf') = (fabric_vf IS NOT NULL))
);
CREATE UNIQUE INDEX node_resource_slots_device ON node_resource_slots (node_id, pci_address) WHERE pci_address IS NOT NULL;
CREATE INDEX node_resource_slots_by_state ON node_resource_slots (state, node_id);
COMMENT ON TABLE node_resource_slots IS 'platform: the parts of a node that can be sold by themselves';
GRANT SELECT, INSERT, UPDATE, DELETE ON node_resource_slots TO gpuaas_system;
INSERT INTO lifecycle_transitions VALUES
    ('slot', 'discovered', 'approved'), ('slot', 'approved', 'discovered'), ('slot', 'available', 'discovered'),
    ('slot', 'approved', 'available'), ('slot', 'available', 'reserved'), ('slot', 'reserved', 'available'),
    ('slot', 'reserved', 'in_use'), ('slot', 'in_use', 'cleaning'), ('slot', 'cleaning', 'available'),
    ('slot', 'cleaning', 'cleanup_blocked'), ('slot', 'cleanup_blocked', 'cleaning'),
    ('slot', 'cleanup_blocked', 'available'), ('slot', 'approved', 'quarantined'),
    ('slot', 'available', 'quarantined'), ('slot', 'cleaning', 'quarantined'),
    ('slot', 'cleanup_blocked', 'quarantined'), ('slot', 'quarantined', 'approved');
CREATE TRIGGER node_resource_slots_lifecycle BEFORE UPDATE OF state ON node_resource_slots
    FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('slot');

CREATE TABLE node_validations (
    id         uuid PRIMARY KEY,
    node_id    uuid        NOT NULL REFERENCES nodes,
    task_id    uuid        NOT NULL,
    profile    text        NOT NULL,
    passed     boolean     NOT NULL,
    evidence   jsonb       NOT NULL,
    created_at timestamptz NOT NULL
);
CREATE INDEX node_validations_by_node ON node_validations (node_id, id);
COMMENT ON TABLE node_validations IS 'platform: evidence of the gate before a node serves tenants';
GRANT SELECT, INSERT ON node_validations TO gpuaas_system;
