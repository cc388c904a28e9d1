-- The fleet: regions, pools, nodes and what they prove, report and are told to do; the authorities and
-- signers that all of it rests on. Single writer: the `fleet` crate, as gpuaas_system, in platform scope.

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

-- ── tasks ────────────────────────────────────────────────────────────────────────────────────────────
-- `payload` and `signature` are what the node believes; the other columns are for finding and showing.
CREATE TABLE node_tasks (
    id             uuid PRIMARY KEY,
    node_id        uuid        NOT NULL REFERENCES nodes,
    task_type      text        NOT NULL,
    state          text        NOT NULL DEFAULT 'queued',
    payload        bytea       NOT NULL,
    signature      bytea       NOT NULL,
    signer_version integer     NOT NULL,
    correlation_id uuid        NOT NULL,
    issued_at      timestamptz NOT NULL,
    expires_at     timestamptz NOT NULL,
    -- While dispatched: until when the node must have said that it started.
    lease_until    timestamptz,
    deliveries     integer     NOT NULL DEFAULT 0,
    started_at     timestamptz,
    finished_at    timestamptz,
    phases         jsonb       NOT NULL DEFAULT '[]',
    -- What the node answered, once; and what it answered after it was too late to matter.
    outcome        jsonb,
    outcome_digest bytea,
    late_outcome   jsonb,
    -- Who waits for the answer: the kind of party, and its key.
    waiting_kind   text,
    waiting_key    text,
    version        bigint      NOT NULL DEFAULT 1,
    created_at     timestamptz NOT NULL,
    updated_at     timestamptz NOT NULL,
    CHECK (expires_at > issued_at),
    CHECK ((waiting_kind IS NULL) = (waiting_key IS NULL)),
    CHECK ((outcome IS NULL) = (outcome_digest IS NULL))
);
CREATE INDEX node_tasks_queued ON node_tasks (node_id, id) WHERE state = 'queued';
CREATE INDEX node_tasks_open ON node_tasks (expires_at) WHERE state IN ('queued', 'dispatched', 'running');
CREATE INDEX node_tasks_leased ON node_tasks (node_id, lease_until) WHERE state = 'dispatched';
CREATE INDEX node_tasks_by_node ON node_tasks (node_id, id);
COMMENT ON TABLE node_tasks IS 'platform: signed work for nodes and what came of it';
GRANT SELECT, INSERT, UPDATE ON node_tasks TO gpuaas_system;
INSERT INTO lifecycle_transitions VALUES
    ('task', 'queued', 'dispatched'), ('task', 'dispatched', 'queued'), ('task', 'dispatched', 'running'),
    ('task', 'dispatched', 'succeeded'), ('task', 'dispatched', 'failed'),
    ('task', 'running', 'succeeded'), ('task', 'running', 'failed'),
    ('task', 'queued', 'failed'),
    ('task', 'queued', 'expired'), ('task', 'dispatched', 'expired'), ('task', 'running', 'expired'),
    ('task', 'queued', 'cancelled'), ('task', 'dispatched', 'cancelled'), ('task', 'running', 'cancelled');
CREATE TRIGGER node_tasks_lifecycle BEFORE UPDATE OF state ON node_tasks
    FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('task');

-- What was signed never changes.
CREATE FUNCTION refuse_change_of_signed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'signed work cannot be changed' USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER node_tasks_signed BEFORE UPDATE OF node_id, task_type, payload, signature, signer_version, issued_at,
    expires_at ON node_tasks FOR EACH ROW EXECUTE FUNCTION refuse_change_of_signed();

CREATE FUNCTION announce_task() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('gpuaas_tasks', NEW.node_id::text);
    RETURN NULL;
END $$;
CREATE TRIGGER node_tasks_announce AFTER INSERT ON node_tasks FOR EACH ROW EXECUTE FUNCTION announce_task();
CREATE TRIGGER node_tasks_announce_again AFTER UPDATE OF state ON node_tasks FOR EACH ROW
    WHEN (NEW.state = 'queued') EXECUTE FUNCTION announce_task();

-- ── health ───────────────────────────────────────────────────────────────────────────────────────────
CREATE TABLE health_rules (
    -- An exact code (`xid.79`), or a prefix with a star (`xid.*`, `*`); the longest match decides.
    pattern    text PRIMARY KEY CHECK (pattern ~ '^([a-z0-9_]+\.)*([a-z0-9_]+|\*)$'),
    action     text        NOT NULL CHECK (action IN ('observe', 'warn', 'cordon', 'quarantine', 'credit')),
    meaning    text        NOT NULL,
    version    bigint      NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL
);
COMMENT ON TABLE health_rules IS 'platform: what is done about a health finding; operators edit it';
GRANT SELECT, INSERT, UPDATE, DELETE ON health_rules TO gpuaas_system;
INSERT INTO health_rules (pattern, action, meaning, created_at, updated_at)
SELECT pattern, action, meaning, now(), now() FROM (VALUES
    ('*', 'observe', 'Anything that no other line names.'),
    ('xid.*', 'warn', 'Any error of the NVIDIA driver that no other line names.'),
    ('xid.13', 'observe', 'Graphics engine exception: usually the program''s own fault.'),
    ('xid.31', 'observe', 'Memory page fault: usually the program''s own fault.'),
    ('xid.43', 'observe', 'The GPU stopped processing for one program.'),
    ('xid.45', 'observe', 'Preemptive clean-up after an earlier error.'),
    ('xid.48', 'quarantine', 'Double-bit ECC error.'),
    ('xid.63', 'warn', 'A memory row was remapped.'),
    ('xid.64', 'cordon', 'Remapping a memory row failed.'),
    ('xid.74', 'cordon', 'NVLink error.'),
    ('xid.79', 'credit', 'The GPU fell off the bus.'),
    ('xid.92', 'warn', 'High rate of single-bit ECC errors.'),
    ('xid.94', 'warn', 'Contained ECC error.'),
    ('xid.95', 'credit', 'Uncontained ECC error.'),
    ('xid.119', 'cordon', 'GSP firmware does not answer.'),
    ('xid.120', 'cordon', 'GSP firmware failed.'),
    ('dcgm.*', 'warn', 'Any watch of DCGM that no other line names.'),
    ('dcgm.thermal', 'cordon', 'Above the temperature limit.'),
    ('dcgm.power', 'warn', 'Throttled by power.'),
    ('dcgm.pcie', 'warn', 'PCIe replays above the limit.'),
    ('dcgm.memory', 'quarantine', 'Memory errors above the limit.'),
    ('dcgm.nvlink', 'cordon', 'NVLink is down.'),
    ('amdgpu.*', 'warn', 'Any error of the AMD driver that no other line names.'),
    ('amdgpu.ras', 'credit', 'Uncorrectable RAS error.'),
    ('gpu.missing', 'credit', 'A GPU that was there is gone.'),
    ('gpu.driver', 'cordon', 'The GPU driver does not answer.'),
    ('node.disk_full', 'cordon', 'The state directory of the agent is nearly full.'),
    ('node.clock_skew', 'warn', 'The clock differs from the control plane''s by minutes.')
) AS seeds (pattern, action, meaning);

CREATE TABLE health_findings (
    id            uuid PRIMARY KEY,
    node_id       uuid        NOT NULL REFERENCES nodes,
    slot_id       uuid REFERENCES node_resource_slots,
    code          text        NOT NULL,
    subject       text        NOT NULL,
    message       text        NOT NULL,
    evidence      jsonb       NOT NULL DEFAULT '{}',
    action        text        NOT NULL,
    state         text        NOT NULL DEFAULT 'open',
    seen          bigint      NOT NULL DEFAULT 1,
    first_seen_at timestamptz NOT NULL,
    last_seen_at  timestamptz NOT NULL,
    note          text        NOT NULL DEFAULT '',
    version       bigint      NOT NULL DEFAULT 1,
    created_at    timestamptz NOT NULL,
    updated_at    timestamptz NOT NULL
);
CREATE UNIQUE INDEX health_findings_open ON health_findings (node_id, code, subject) WHERE state <> 'resolved';
CREATE INDEX health_findings_by_node ON health_findings (node_id, id);
COMMENT ON TABLE health_findings IS 'platform: what nodes reported about their health, and what was done';
GRANT SELECT, INSERT, UPDATE ON health_findings TO gpuaas_system;
INSERT INTO lifecycle_transitions VALUES
    ('health_finding', 'open', 'acknowledged'), ('health_finding', 'open', 'resolved'),
    ('health_finding', 'acknowledged', 'resolved');
CREATE TRIGGER health_findings_lifecycle BEFORE UPDATE OF state ON health_findings
    FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('health_finding');

-- ── logs ─────────────────────────────────────────────────────────────────────────────────────────────
-- A window on what agents say, not a store: bounded per node, lost with a crash of the database.
CREATE UNLOGGED TABLE node_log_lines (
    node_id uuid        NOT NULL,
    seq     bigint GENERATED ALWAYS AS IDENTITY,
    at      timestamptz NOT NULL,
    level   text        NOT NULL CHECK (level IN ('error', 'warn', 'info', 'debug')),
    source  text        NOT NULL,
    message text        NOT NULL,
    PRIMARY KEY (node_id, seq)
);
COMMENT ON TABLE node_log_lines IS 'platform: the last log lines of each node';
GRANT SELECT, INSERT, DELETE ON node_log_lines TO gpuaas_system;

-- ── authorities and signers ──────────────────────────────────────────────────────────────────────────
-- `sealed` holds the certificates together with their keys, under the master key: a row that was written by
-- somebody without that key is worth nothing. The readable columns are for showing.
CREATE TABLE authorities (
    id                  uuid PRIMARY KEY,
    state               text        NOT NULL DEFAULT 'staged',
    root_certificate    text        NOT NULL,
    issuing_certificate text        NOT NULL,
    sealed              bytea       NOT NULL,
    not_after           timestamptz NOT NULL,
    version             bigint      NOT NULL DEFAULT 1,
    created_at          timestamptz NOT NULL,
    updated_at          timestamptz NOT NULL
);
CREATE UNIQUE INDEX authorities_one_active ON authorities (state) WHERE state = 'active';
CREATE UNIQUE INDEX authorities_one_staged ON authorities (state) WHERE state = 'staged';
COMMENT ON TABLE authorities IS 'platform: generations of the certificate authority';
GRANT SELECT, INSERT, UPDATE ON authorities TO gpuaas_system;

CREATE TABLE signer_keys (
    signer_version integer PRIMARY KEY CHECK (signer_version > 0),
    state          text        NOT NULL DEFAULT 'staged',
    public_key     bytea       NOT NULL,
    version        bigint      NOT NULL DEFAULT 1,
    created_at     timestamptz NOT NULL,
    updated_at     timestamptz NOT NULL
);
CREATE UNIQUE INDEX signer_keys_one_active ON signer_keys (state) WHERE state = 'active';
CREATE UNIQUE INDEX signer_keys_one_staged ON signer_keys (state) WHERE state = 'staged';
COMMENT ON TABLE signer_keys IS 'platform: public keys that task signatures are checked with; the private ones are not here';
GRANT SELECT, INSERT, UPDATE ON signer_keys TO gpuaas_system;

-- What nodes are told about signers: each document is signed by the key that they pinned when they enrolled.
CREATE TABLE signer_keysets (
    serial     bigint PRIMARY KEY CHECK (serial > 0),
    document   bytea       NOT NULL,
    signature  bytea       NOT NULL,
    created_at timestamptz NOT NULL
);
COMMENT ON TABLE signer_keysets IS 'platform: signed lists of the signers, newest last';
GRANT SELECT, INSERT ON signer_keysets TO gpuaas_system;
CREATE TRIGGER signer_keysets_append_only BEFORE UPDATE OR DELETE ON signer_keysets FOR EACH ROW EXECUTE FUNCTION refuse_change();

INSERT INTO lifecycle_transitions
SELECT lifecycle, from_state, to_state FROM (VALUES ('authority'), ('signer')) AS l (lifecycle), (VALUES
    ('staged', 'active'), ('staged', 'revoked'), ('active', 'grace'), ('active', 'revoked'),
    ('grace', 'retired'), ('grace', 'revoked'), ('retired', 'revoked')
) AS t (from_state, to_state);
CREATE TRIGGER authorities_lifecycle BEFORE UPDATE OF state ON authorities
    FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('authority');
CREATE TRIGGER signer_keys_lifecycle BEFORE UPDATE OF state ON signer_keys
    FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('signer');
