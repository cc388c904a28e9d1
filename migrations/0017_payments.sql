-- Money that comes in, goes back, or is disputed. Single writer: the `payments` crate. What it does to a balance is in
-- the ledger, written through ledger_append in the transaction of the change here.

-- Whom the provider knows an organization as.
CREATE TABLE payment_customers (
    org_id     uuid        NOT NULL,
    provider   text        NOT NULL,
    customer   text        NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (org_id, provider)
);
COMMENT ON TABLE payment_customers IS 'tenant: whom the payment provider knows an organization as';
ALTER TABLE payment_customers ENABLE ROW LEVEL SECURITY;
CREATE POLICY payment_customers_tenant ON payment_customers FOR SELECT TO gpuaas_app USING (org_id = (SELECT current_org()));
CREATE POLICY payment_customers_system ON payment_customers TO gpuaas_system USING (true);
GRANT SELECT ON payment_customers TO gpuaas_app;
GRANT SELECT, INSERT ON payment_customers TO gpuaas_system;

-- ── top-ups ──────────────────────────────────────────────────────────────────────────────────────────
-- A checkout. The row is there before the provider hears of it, so a provider that answers to nobody loses nothing.
CREATE TABLE topups (
    id                  uuid PRIMARY KEY,
    org_id              uuid        NOT NULL,
    provider            text        NOT NULL,
    amount_minor        bigint      NOT NULL CHECK (amount_minor > 0),
    currency            text        NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
    state               text        NOT NULL CHECK (state IN ('created', 'open', 'paid', 'expired', 'failed')),
    state_reason        text        NOT NULL,
    session_id          text UNIQUE,
    url                 text,
    -- When the provider is asked (again): for a session while there is none, then what became of it.
    next_attempt_at     timestamptz NOT NULL,
    attempts            integer     NOT NULL DEFAULT 0,
    cancel_requested_at timestamptz,
    creator_kind        text        NOT NULL,
    creator_id          uuid        NOT NULL,
    correlation_id      uuid        NOT NULL,
    version             bigint      NOT NULL DEFAULT 1,
    created_at          timestamptz NOT NULL,
    updated_at          timestamptz NOT NULL,
    CHECK (state <> 'open' OR (session_id IS NOT NULL AND url IS NOT NULL))
);
CREATE INDEX topups_by_org ON topups (org_id, id);
CREATE INDEX topups_due ON topups (next_attempt_at) WHERE state IN ('created', 'open');
COMMENT ON TABLE topups IS 'tenant: checkouts at the payment provider';
ALTER TABLE topups ENABLE ROW LEVEL SECURITY;
CREATE POLICY topups_tenant ON topups TO gpuaas_app USING (org_id = (SELECT current_org()));
CREATE POLICY topups_system ON topups TO gpuaas_system USING (true);
GRANT SELECT, INSERT, UPDATE ON topups TO gpuaas_app;
GRANT SELECT, UPDATE ON topups TO gpuaas_system;
-- Money that arrives is credited, whatever was thought of the checkout before.
INSERT INTO lifecycle_transitions VALUES
    ('topup', 'created', 'open'), ('topup', 'created', 'paid'), ('topup', 'created', 'expired'), ('topup', 'created', 'failed'),
    ('topup', 'open', 'paid'), ('topup', 'open', 'expired'), ('topup', 'open', 'failed'),
    ('topup', 'expired', 'paid'), ('topup', 'failed', 'paid');
CREATE TRIGGER topups_lifecycle BEFORE UPDATE OF state ON topups FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('topup');

-- Wakes the worker, and whoever waits for this very thing.
CREATE FUNCTION announce_payments() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('gpuaas_webhooks', NEW.id::text);
    RETURN NULL;
END $$;
CREATE TRIGGER topups_announce_new AFTER INSERT ON topups FOR EACH ROW EXECUTE FUNCTION announce_payments();
CREATE TRIGGER topups_announce_change AFTER UPDATE OF state, cancel_requested_at ON topups
    FOR EACH ROW EXECUTE FUNCTION announce_payments();

-- ── payments ─────────────────────────────────────────────────────────────────────────────────────────
-- Money that arrived. What went back or is disputed follows from refunds and disputes.
CREATE TABLE payments (
    id           uuid PRIMARY KEY,
    org_id       uuid        NOT NULL,
    topup_id     uuid        NOT NULL UNIQUE REFERENCES topups,
    provider     text        NOT NULL,
    intent       text        NOT NULL UNIQUE,
    amount_minor bigint      NOT NULL CHECK (amount_minor > 0),
    currency     text        NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
    posting_id   uuid        NOT NULL,
    paid_at      timestamptz NOT NULL,
    created_at   timestamptz NOT NULL
);
CREATE INDEX payments_by_org ON payments (org_id, id);
CREATE INDEX payments_by_day ON payments (provider, paid_at);
COMMENT ON TABLE payments IS 'tenant: money that arrived';
ALTER TABLE payments ENABLE ROW LEVEL SECURITY;
CREATE POLICY payments_tenant ON payments FOR SELECT TO gpuaas_app USING (org_id = (SELECT current_org()));
CREATE POLICY payments_system ON payments TO gpuaas_system USING (true);
GRANT SELECT ON payments TO gpuaas_app;
-- A row is never changed; the right to is what locking it takes.
GRANT SELECT, INSERT, UPDATE (created_at) ON payments TO gpuaas_system;

CREATE TABLE refunds (
    id              uuid PRIMARY KEY,
    org_id          uuid        NOT NULL,
    payment_id      uuid        NOT NULL REFERENCES payments,
    amount_minor    bigint      NOT NULL CHECK (amount_minor > 0),
    currency        text        NOT NULL,
    destination     text        NOT NULL CHECK (destination IN ('card', 'credit')),
    -- Who wanted it: one of our administrators, or somebody at the provider.
    source          text        NOT NULL CHECK (source IN ('operator', 'provider')),
    reason          text        NOT NULL,
    state           text        NOT NULL CHECK (state IN ('pending', 'succeeded', 'failed')),
    state_reason    text        NOT NULL,
    provider_refund text UNIQUE,
    posting_id      uuid        NOT NULL,
    requested_by    uuid,
    next_attempt_at timestamptz NOT NULL,
    attempts        integer     NOT NULL DEFAULT 0,
    correlation_id  uuid        NOT NULL,
    version         bigint      NOT NULL DEFAULT 1,
    created_at      timestamptz NOT NULL,
    updated_at      timestamptz NOT NULL
);
CREATE INDEX refunds_by_org ON refunds (org_id, id);
CREATE INDEX refunds_by_payment ON refunds (payment_id);
CREATE INDEX refunds_due ON refunds (next_attempt_at) WHERE state = 'pending';
CREATE INDEX refunds_by_day ON refunds (created_at) WHERE provider_refund IS NOT NULL;
COMMENT ON TABLE refunds IS 'tenant: money that goes back';
ALTER TABLE refunds ENABLE ROW LEVEL SECURITY;
CREATE POLICY refunds_tenant ON refunds FOR SELECT TO gpuaas_app USING (org_id = (SELECT current_org()));
CREATE POLICY refunds_system ON refunds TO gpuaas_system USING (true);
GRANT SELECT ON refunds TO gpuaas_app;
GRANT SELECT, INSERT, UPDATE ON refunds TO gpuaas_system;
-- A bank may send back what was thought to have arrived.
INSERT INTO lifecycle_transitions VALUES
    ('refund', 'pending', 'succeeded'), ('refund', 'pending', 'failed'), ('refund', 'succeeded', 'failed');
CREATE TRIGGER refunds_lifecycle BEFORE UPDATE OF state ON refunds FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('refund');
CREATE TRIGGER refunds_announce_new AFTER INSERT ON refunds FOR EACH ROW EXECUTE FUNCTION announce_payments();

CREATE TABLE disputes (
    id               uuid PRIMARY KEY,
    org_id           uuid        NOT NULL,
    payment_id       uuid        NOT NULL REFERENCES payments,
    provider_dispute text        NOT NULL UNIQUE,
    amount_minor     bigint      NOT NULL CHECK (amount_minor > 0),
    currency         text        NOT NULL,
    reason           text        NOT NULL,
    state            text        NOT NULL CHECK (state IN ('open', 'won', 'lost')),
    posting_id       uuid        NOT NULL,
    closed_at        timestamptz,
    version          bigint      NOT NULL DEFAULT 1,
    created_at       timestamptz NOT NULL,
    updated_at       timestamptz NOT NULL,
    CHECK ((state = 'open') = (closed_at IS NULL))
);
CREATE INDEX disputes_by_org ON disputes (org_id, id);
CREATE INDEX disputes_by_payment ON disputes (payment_id);
COMMENT ON TABLE disputes IS 'tenant: payments that a cardholder disputes';
ALTER TABLE disputes ENABLE ROW LEVEL SECURITY;
CREATE POLICY disputes_tenant ON disputes FOR SELECT TO gpuaas_app USING (org_id = (SELECT current_org()));
CREATE POLICY disputes_system ON disputes TO gpuaas_system USING (true);
GRANT SELECT ON disputes TO gpuaas_app;
GRANT SELECT, INSERT, UPDATE ON disputes TO gpuaas_system;
INSERT INTO lifecycle_transitions VALUES ('dispute', 'open', 'won'), ('dispute', 'open', 'lost');
CREATE TRIGGER disputes_lifecycle BEFORE UPDATE OF state ON disputes FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('dispute');

-- ── messages of the provider ─────────────────────────────────────────────────────────────────────────
-- As they came, byte for byte, after their signature was checked and before anything was done with them.
CREATE TABLE payment_messages (
    id              uuid PRIMARY KEY,
    provider        text        NOT NULL,
    event_id        text        NOT NULL,
    event_type      text        NOT NULL,
    body            bytea       NOT NULL,
    received_at     timestamptz NOT NULL,
    state           text        NOT NULL DEFAULT 'received' CHECK (state IN ('received', 'processed', 'ignored', 'failed')),
    state_reason    text        NOT NULL DEFAULT '',
    next_attempt_at timestamptz NOT NULL,
    attempts        integer     NOT NULL DEFAULT 0,
    -- The payment that it is about and that is not known yet.
    waits_for       text,
    processed_at    timestamptz,
    UNIQUE (provider, event_id)
);
CREATE INDEX payment_messages_due ON payment_messages (next_attempt_at, id) WHERE state = 'received';
CREATE INDEX payment_messages_waiting ON payment_messages (waits_for) WHERE waits_for IS NOT NULL AND state IN ('received', 'failed');
CREATE INDEX payment_messages_failed ON payment_messages (id) WHERE state = 'failed';
COMMENT ON TABLE payment_messages IS 'platform: messages of the payment provider as they came, and what became of them';
GRANT SELECT, INSERT, UPDATE ON payment_messages TO gpuaas_system;
INSERT INTO lifecycle_transitions VALUES
    ('payment_message', 'received', 'processed'), ('payment_message', 'received', 'ignored'),
    ('payment_message', 'received', 'failed'), ('payment_message', 'failed', 'received');
CREATE TRIGGER payment_messages_lifecycle BEFORE UPDATE OF state ON payment_messages
    FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('payment_message');

-- ── reconciliation ───────────────────────────────────────────────────────────────────────────────────
CREATE TABLE payment_days (
    id              uuid PRIMARY KEY,
    provider        text        NOT NULL,
    day             date        NOT NULL,
    state           text        NOT NULL CHECK (state IN ('requested', 'clean', 'different', 'failed')),
    state_reason    text        NOT NULL,
    -- At the provider: payments and refunds that it lists for the day.
    listed          bigint      NOT NULL DEFAULT 0,
    missing         bigint      NOT NULL DEFAULT 0,
    extra           bigint      NOT NULL DEFAULT 0,
    different       bigint      NOT NULL DEFAULT 0,
    next_attempt_at timestamptz NOT NULL,
    attempts        integer     NOT NULL DEFAULT 0,
    requested_at    timestamptz NOT NULL,
    checked_at      timestamptz,
    UNIQUE (provider, day)
);
CREATE INDEX payment_days_due ON payment_days (next_attempt_at) WHERE state = 'requested';
COMMENT ON TABLE payment_days IS 'platform: days that were compared with the payment provider';
GRANT SELECT, INSERT, UPDATE ON payment_days TO gpuaas_system;
INSERT INTO lifecycle_transitions VALUES
    ('payment_day', 'requested', 'clean'), ('payment_day', 'requested', 'different'), ('payment_day', 'requested', 'failed'),
    ('payment_day', 'clean', 'requested'), ('payment_day', 'different', 'requested'), ('payment_day', 'failed', 'requested');
CREATE TRIGGER payment_days_lifecycle BEFORE UPDATE OF state ON payment_days
    FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('payment_day');
CREATE TRIGGER payment_days_announce AFTER INSERT OR UPDATE OF requested_at ON payment_days
    FOR EACH ROW EXECUTE FUNCTION announce_payments();
