-- Notifications, what people prefer, outgoing webhooks, and messages on their way. Single writer: the `notify` crate.

-- ── what people are told ─────────────────────────────────────────────────────────────────────────────
-- Made when somebody is first told something, or first chooses. `last_seq` numbers their notifications without gaps:
-- it is taken under the row's lock, so a stream that has seen a number has seen all before it.
CREATE TABLE notification_people (
    person_id  uuid PRIMARY KEY REFERENCES users,
    last_seq   bigint      NOT NULL DEFAULT 0,
    -- Choices that differ from the default: {"<kind>": {"in_app": bool, "email": bool}}.
    choices    jsonb       NOT NULL DEFAULT '{}',
    version    bigint      NOT NULL DEFAULT 1,
    updated_at timestamptz NOT NULL
);
COMMENT ON TABLE notification_people IS 'person: how somebody wants to be told, and how often they were';

CREATE TABLE notifications (
    id            uuid PRIMARY KEY,
    person_id     uuid        NOT NULL REFERENCES users,
    seq           bigint      NOT NULL,
    event_id      uuid        NOT NULL,
    kind          text        NOT NULL,
    severity      text        NOT NULL CHECK (severity IN ('info', 'warning', 'critical')),
    title         text        NOT NULL,
    text          text        NOT NULL,
    org_id        uuid,
    project_id    uuid,
    resource_kind text,
    resource_id   text,
    read_at       timestamptz,
    created_at    timestamptz NOT NULL,
    UNIQUE (person_id, event_id),
    UNIQUE (person_id, seq),
    CHECK ((resource_kind IS NULL) = (resource_id IS NULL))
);
CREATE INDEX notifications_by_person ON notifications (person_id, id);
CREATE INDEX notifications_unread ON notifications (person_id, id) WHERE read_at IS NULL;
CREATE INDEX notifications_by_age ON notifications (created_at);
COMMENT ON TABLE notifications IS 'person: what somebody was told, once for each event';

ALTER TABLE notification_people ENABLE ROW LEVEL SECURITY;
ALTER TABLE notifications ENABLE ROW LEVEL SECURITY;
CREATE POLICY notification_people_person ON notification_people TO gpuaas_app USING (person_id = (SELECT current_principal()));
CREATE POLICY notification_people_system ON notification_people TO gpuaas_system USING (true);
CREATE POLICY notifications_person ON notifications TO gpuaas_app USING (person_id = (SELECT current_principal()));
CREATE POLICY notifications_system ON notifications TO gpuaas_system USING (true);
GRANT SELECT, INSERT ON notification_people TO gpuaas_app, gpuaas_system;
GRANT UPDATE (choices, version, updated_at) ON notification_people TO gpuaas_app;
GRANT UPDATE (last_seq) ON notification_people TO gpuaas_system;
GRANT SELECT ON notifications TO gpuaas_app, gpuaas_system;
GRANT UPDATE (read_at) ON notifications TO gpuaas_app;
GRANT INSERT, DELETE ON notifications TO gpuaas_system;

-- ── outgoing webhooks ────────────────────────────────────────────────────────────────────────────────
CREATE TABLE webhooks (
    id                uuid PRIMARY KEY,
    org_id            uuid        NOT NULL,
    name              text        NOT NULL,
    url               text        NOT NULL,
    -- Types of events; all when there are none.
    event_types       text[]      NOT NULL,
    state             text        NOT NULL CHECK (state IN ('active', 'disabled')),
    disabled_reason   text,
    -- Sealed; the one before is used as well until `previous_until`.
    secret            bytea       NOT NULL,
    previous_secret   bytea,
    previous_until    timestamptz,
    -- Since when nothing arrived any more; nothing while all is well.
    failing_since     timestamptz,
    last_delivered_at timestamptz,
    version           bigint      NOT NULL DEFAULT 1,
    created_at        timestamptz NOT NULL,
    updated_at        timestamptz NOT NULL,
    UNIQUE (org_id, name),
    CHECK ((state = 'disabled') = (disabled_reason IS NOT NULL)),
    CHECK ((previous_secret IS NULL) = (previous_until IS NULL))
);
CREATE INDEX webhooks_by_org ON webhooks (org_id, id);
COMMENT ON TABLE webhooks IS 'tenant: where an organization wants to be told of events';
INSERT INTO lifecycle_transitions VALUES ('webhook', 'active', 'disabled'), ('webhook', 'disabled', 'active');
CREATE TRIGGER webhooks_lifecycle BEFORE UPDATE OF state ON webhooks FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('webhook');

ALTER TABLE webhooks ENABLE ROW LEVEL SECURITY;
CREATE POLICY webhooks_tenant ON webhooks TO gpuaas_app USING (org_id = (SELECT current_org()));
CREATE POLICY webhooks_system ON webhooks TO gpuaas_system USING (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON webhooks TO gpuaas_app;
GRANT SELECT, UPDATE ON webhooks TO gpuaas_system;

-- ── messages on their way ────────────────────────────────────────────────────────────────────────────
-- Mail to a person, or an event to a webhook: at most one for each event and receiver. Who takes one to send it moves
-- `next_attempt_at` to when somebody else may, and counts the attempt; only the last attempt counts.
CREATE TABLE deliveries (
    id              uuid PRIMARY KEY,
    channel         text        NOT NULL CHECK (channel IN ('mail', 'webhook')),
    state           text        NOT NULL CHECK (state IN ('queued', 'sent', 'failed')),
    event_id        uuid        NOT NULL,
    event_type      text        NOT NULL,
    org_id          uuid,
    person_id       uuid REFERENCES users,
    webhook_id      uuid REFERENCES webhooks ON DELETE CASCADE,
    -- The address of the person when the message was made.
    address         text,
    -- Of mail what it says; of a webhook the body, of which exactly these bytes are signed.
    content         text        NOT NULL,
    attempts        integer     NOT NULL DEFAULT 0,
    next_attempt_at timestamptz NOT NULL,
    -- While somebody sends it.
    taken_until     timestamptz,
    last_error      text,
    -- Attempts and hours are counted from here.
    queued_at       timestamptz NOT NULL,
    finished_at     timestamptz,
    created_at      timestamptz NOT NULL,
    CHECK ((channel = 'mail') = (person_id IS NOT NULL AND address IS NOT NULL)),
    CHECK ((channel = 'webhook') = (webhook_id IS NOT NULL)),
    CHECK (channel = 'mail' OR org_id IS NOT NULL),
    CHECK ((state = 'queued') = (finished_at IS NULL)),
    CHECK (state = 'queued' OR taken_until IS NULL)
);
CREATE UNIQUE INDEX deliveries_once_by_mail ON deliveries (event_id, person_id) WHERE channel = 'mail';
CREATE UNIQUE INDEX deliveries_once_by_webhook ON deliveries (event_id, webhook_id) WHERE channel = 'webhook';
CREATE INDEX deliveries_due ON deliveries (channel, next_attempt_at) WHERE state = 'queued';
CREATE INDEX deliveries_taken ON deliveries (channel, taken_until) WHERE state = 'queued' AND taken_until IS NOT NULL;
CREATE INDEX deliveries_by_webhook ON deliveries (webhook_id, id) WHERE channel = 'webhook';
CREATE INDEX deliveries_by_state ON deliveries (state, id);
CREATE INDEX deliveries_by_age ON deliveries (finished_at) WHERE finished_at IS NOT NULL;
COMMENT ON TABLE deliveries IS 'tenant: messages on their way; tenants see those of their webhooks';
INSERT INTO lifecycle_transitions VALUES
    ('delivery', 'queued', 'sent'), ('delivery', 'queued', 'failed'), ('delivery', 'failed', 'queued');
CREATE TRIGGER deliveries_lifecycle BEFORE UPDATE OF state ON deliveries FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('delivery');

ALTER TABLE deliveries ENABLE ROW LEVEL SECURITY;
CREATE POLICY deliveries_tenant ON deliveries TO gpuaas_app USING (org_id = (SELECT current_org()) AND channel = 'webhook');
CREATE POLICY deliveries_system ON deliveries TO gpuaas_system USING (true);
GRANT SELECT, INSERT ON deliveries TO gpuaas_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON deliveries TO gpuaas_system;
