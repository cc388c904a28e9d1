-- What nodes are told to do, what they report about their health, and what they say. Single writer: the `fleet`
-- crate, as gpuaas_system, in platform scope.

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
GRANT SELECT, INSERT, UPDATE, DELETE ON node_tasks TO gpuaas_system;
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
