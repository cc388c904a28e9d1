-- Meters, usage, balance states, budgets, adjustments. Single writer: the `billing` crate. What moves money goes through
-- the functions of the next two migrations, each of which does all of it or nothing.

-- ── accounts ─────────────────────────────────────────────────────────────────────────────────────────
-- How an organization stands. The balance itself is in the ledger and nowhere else.
CREATE TABLE billing_accounts (
    org_id                 uuid PRIMARY KEY,
    state                  text        NOT NULL CHECK (state IN ('healthy', 'low_balance', 'auto_release_pending', 'depleted')),
    state_changed_at       timestamptz NOT NULL,
    -- When the balance ends if everything goes on as it does; nothing while nothing runs.
    projected_depletion_at timestamptz,
    version                bigint      NOT NULL DEFAULT 1
);
CREATE INDEX billing_accounts_ending ON billing_accounts (projected_depletion_at) WHERE state = 'auto_release_pending';
COMMENT ON TABLE billing_accounts IS 'tenant: balance state of each organization';
ALTER TABLE billing_accounts ENABLE ROW LEVEL SECURITY;
CREATE POLICY billing_accounts_tenant ON billing_accounts FOR SELECT TO gpuaas_app USING (org_id = (SELECT current_org()));
CREATE POLICY billing_accounts_system ON billing_accounts TO gpuaas_system USING (true);
GRANT SELECT ON billing_accounts TO gpuaas_app;
GRANT SELECT, INSERT, UPDATE ON billing_accounts TO gpuaas_system;
INSERT INTO lifecycle_transitions
    SELECT 'balance', a, b FROM unnest(ARRAY['healthy', 'low_balance', 'auto_release_pending', 'depleted']) a,
        unnest(ARRAY['healthy', 'low_balance', 'auto_release_pending', 'depleted']) b WHERE a <> b;
CREATE TRIGGER billing_accounts_lifecycle BEFORE UPDATE OF state ON billing_accounts
    FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('balance');

-- ── meters ───────────────────────────────────────────────────────────────────────────────────────────
-- One for each thing that costs by time. Price and units are pinned when it is made. `carry` is what was used and is
-- less than a minor unit, in 3600ths of one: price per hour × units × seconds is a whole number of these, so nothing
-- is ever rounded away.
CREATE TABLE meters (
    id                  uuid PRIMARY KEY,
    org_id              uuid        NOT NULL,
    project_id          uuid        NOT NULL,
    source              text        NOT NULL CHECK (source IN ('allocation', 'app_runtime')),
    allocation_id       uuid UNIQUE,
    app_instance_id     uuid,
    component           text,
    operating_mode      text,
    control_plane_scope text,
    runtime_backend     text,
    person_id           uuid,
    sku                 text        NOT NULL,
    unit                text        NOT NULL CHECK (unit IN ('gpu_hour', 'node_hour', 'runtime_uptime_hour', 'request', 'job_hour')),
    units               integer     NOT NULL CHECK (units BETWEEN 0 AND 100000),
    unit_price_minor    bigint      NOT NULL CHECK (unit_price_minor BETWEEN 0 AND 1000000000),
    currency            text        NOT NULL,
    state               text        NOT NULL CHECK (state IN ('held', 'open', 'paused', 'closed', 'settled', 'void')),
    -- Set aside for it at launch, and what is left of that: its usage draws on it first.
    hold_minor          bigint      NOT NULL DEFAULT 0 CHECK (hold_minor >= 0),
    hold_remaining      bigint      NOT NULL DEFAULT 0 CHECK (hold_remaining BETWEEN 0 AND hold_minor),
    -- How much of it was promotional credit: what is not used of that goes back there and never becomes money.
    hold_promo          bigint      NOT NULL DEFAULT 0 CHECK (hold_promo BETWEEN 0 AND hold_minor),
    opened_at           timestamptz,
    accrued_until       timestamptz,
    -- Usage before this is not taken back: the meter was opened or resumed here.
    running_since       timestamptz,
    -- Counts how often something was taken back: time that is gone over again has a new turn.
    turn                integer     NOT NULL DEFAULT 0,
    carry               integer     NOT NULL DEFAULT 0 CHECK (carry BETWEEN 0 AND 3599),
    posted_minor        bigint      NOT NULL DEFAULT 0,
    closed_at           timestamptz,
    created_at          timestamptz NOT NULL,
    CHECK ((source = 'allocation') = (allocation_id IS NOT NULL)),
    CHECK ((source = 'app_runtime') = (app_instance_id IS NOT NULL)),
    CHECK ((state IN ('held', 'void')) = (opened_at IS NULL)),
    CHECK ((opened_at IS NULL) = (accrued_until IS NULL)),
    CHECK ((state IN ('closed', 'settled')) = (closed_at IS NOT NULL)),
    CHECK (state NOT IN ('settled', 'void') OR hold_remaining = 0)
) WITH (fillfactor = 70);
CREATE INDEX meters_running ON meters (org_id) WHERE state IN ('open', 'closed');
CREATE INDEX meters_ended ON meters (org_id) WHERE state = 'closed';
CREATE INDEX meters_by_org ON meters (org_id, project_id, id);
CREATE INDEX meters_held ON meters (created_at) WHERE state = 'held';
COMMENT ON TABLE meters IS 'tenant: what is paid for by time; written by the functions of migrations 0015 and 0016 only';
ALTER TABLE meters ENABLE ROW LEVEL SECURITY;
CREATE POLICY meters_tenant ON meters FOR SELECT TO gpuaas_app USING (org_id = (SELECT current_org()));
CREATE POLICY meters_system ON meters FOR SELECT TO gpuaas_system USING (true);
GRANT SELECT ON meters TO gpuaas_app, gpuaas_system;
INSERT INTO lifecycle_transitions VALUES
    ('meter', 'held', 'open'), ('meter', 'held', 'void'), ('meter', 'open', 'paused'), ('meter', 'paused', 'open'),
    ('meter', 'open', 'closed'), ('meter', 'paused', 'closed'), ('meter', 'closed', 'settled');
CREATE TRIGGER meters_lifecycle BEFORE UPDATE OF state ON meters FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('meter');

-- What was used in each window, once; what was taken back has its own kind and a negative amount.
CREATE TABLE usage_records (
    org_id       uuid        NOT NULL,
    meter_id     uuid        NOT NULL,
    window_start timestamptz NOT NULL,
    window_end   timestamptz NOT NULL CHECK (window_end > window_start),
    kind         text        NOT NULL CHECK (kind IN ('usage', 'credit', 'correction')),
    -- Whole minor units that became due with it, and the carry after it.
    amount_minor bigint      NOT NULL,
    carry        integer     NOT NULL,
    -- The posting that holds it; nothing when no whole minor unit became due.
    seq          bigint,
    posted_at    timestamptz NOT NULL,
    -- Of the meter, when it was written: in one turn time only goes forward.
    turn         integer     NOT NULL DEFAULT 0,
    PRIMARY KEY (meter_id, window_start, kind, turn),
    CHECK ((kind = 'usage' AND amount_minor >= 0) OR (kind <> 'usage' AND amount_minor <= 0))
) PARTITION BY RANGE (window_start);
CREATE INDEX usage_records_by_posting ON usage_records (org_id, posted_at);
COMMENT ON TABLE usage_records IS 'tenant: append-only; metered use by window; written by the functions of migrations 0015 and 0016 only';
ALTER TABLE usage_records ENABLE ROW LEVEL SECURITY;
CREATE POLICY usage_tenant ON usage_records FOR SELECT TO gpuaas_app USING (org_id = (SELECT current_org()));
CREATE POLICY usage_system ON usage_records FOR SELECT TO gpuaas_system USING (true);
GRANT SELECT ON usage_records TO gpuaas_app, gpuaas_system;
CREATE TRIGGER usage_no_truncate BEFORE TRUNCATE ON usage_records FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER usage_append_only BEFORE UPDATE OR DELETE ON usage_records FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- Times for which nobody pays, and why.
CREATE TABLE meter_pauses (
    id             uuid PRIMARY KEY,
    org_id         uuid        NOT NULL,
    meter_id       uuid        NOT NULL REFERENCES meters,
    -- From when on it is not paid for: what was accrued since is given back.
    since          timestamptz NOT NULL,
    resumed_at     timestamptz,
    finding_id     uuid,
    reason         text        NOT NULL,
    evidence       jsonb       NOT NULL,
    credited_minor bigint      NOT NULL,
    seq            bigint,
    created_at     timestamptz NOT NULL
);
CREATE UNIQUE INDEX meter_pauses_open ON meter_pauses (meter_id) WHERE resumed_at IS NULL;
CREATE INDEX meter_pauses_by_org ON meter_pauses (org_id, id);
CREATE INDEX meter_pauses_by_finding ON meter_pauses (finding_id) WHERE resumed_at IS NULL;
COMMENT ON TABLE meter_pauses IS 'tenant: when meters stood still, and what was given back for it; written by meter_pause and meter_resume only';
ALTER TABLE meter_pauses ENABLE ROW LEVEL SECURITY;
CREATE POLICY meter_pauses_tenant ON meter_pauses FOR SELECT TO gpuaas_app USING (org_id = (SELECT current_org()));
CREATE POLICY meter_pauses_system ON meter_pauses FOR SELECT TO gpuaas_system USING (true);
GRANT SELECT ON meter_pauses TO gpuaas_app, gpuaas_system;

-- ── budgets ──────────────────────────────────────────────────────────────────────────────────────────
CREATE TABLE budgets (
    project_id     uuid PRIMARY KEY,
    org_id         uuid        NOT NULL,
    -- For a calendar month (UTC), in the currency of the ledger.
    amount_minor   bigint      NOT NULL CHECK (amount_minor > 0),
    threshold_percent integer  NOT NULL CHECK (threshold_percent BETWEEN 1 AND 100),
    action         text        NOT NULL CHECK (action IN ('notify', 'block', 'release')),
    version        bigint      NOT NULL DEFAULT 1,
    created_at     timestamptz NOT NULL,
    updated_at     timestamptz NOT NULL
);
CREATE INDEX budgets_by_org ON budgets (org_id);
COMMENT ON TABLE budgets IS 'tenant: what a project may spend in a month';
ALTER TABLE budgets ENABLE ROW LEVEL SECURITY;
CREATE POLICY budgets_tenant ON budgets TO gpuaas_app USING (org_id = (SELECT current_org()));
CREATE POLICY budgets_system ON budgets TO gpuaas_system USING (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON budgets TO gpuaas_app;
GRANT SELECT ON budgets TO gpuaas_system;

-- How far the spending of the month was added up, so that adding up goes on from there.
CREATE TABLE budget_progress (
    project_id  uuid PRIMARY KEY REFERENCES budgets ON DELETE CASCADE,
    org_id      uuid        NOT NULL,
    month       date        NOT NULL,
    spent_minor bigint      NOT NULL,
    through_seq bigint      NOT NULL,
    -- When the threshold was crossed in this month.
    crossed_at  timestamptz
);
COMMENT ON TABLE budget_progress IS 'tenant: what projects with a budget have spent this month';
ALTER TABLE budget_progress ENABLE ROW LEVEL SECURITY;
CREATE POLICY budget_progress_tenant ON budget_progress FOR SELECT TO gpuaas_app USING (org_id = (SELECT current_org()));
CREATE POLICY budget_progress_system ON budget_progress TO gpuaas_system USING (true);
GRANT SELECT ON budget_progress TO gpuaas_app;
GRANT SELECT, INSERT, UPDATE ON budget_progress TO gpuaas_system;

-- ── adjustments ──────────────────────────────────────────────────────────────────────────────────────
-- What an administrator asks to be posted; above the policy's threshold a second one approves it.
CREATE TABLE ledger_adjustments (
    id                uuid PRIMARY KEY,
    org_id            uuid        NOT NULL,
    kind              text        NOT NULL CHECK (kind IN ('credit', 'promo', 'correction')),
    -- Positive: the organization gains.
    amount_minor      bigint      NOT NULL CHECK (amount_minor <> 0),
    currency          text        NOT NULL,
    corrects_entry_id uuid,
    reason            text        NOT NULL,
    state             text        NOT NULL CHECK (state IN ('proposed', 'posted', 'rejected')),
    proposed_by       uuid        NOT NULL,
    decided_by        uuid,
    seq               bigint,
    version           bigint      NOT NULL DEFAULT 1,
    created_at        timestamptz NOT NULL,
    updated_at        timestamptz NOT NULL,
    CHECK ((state = 'posted') = (seq IS NOT NULL)),
    CHECK ((kind = 'correction') OR amount_minor > 0)
);
CREATE INDEX ledger_adjustments_by_state ON ledger_adjustments (state, id);
CREATE INDEX ledger_adjustments_by_org ON ledger_adjustments (org_id, id);
COMMENT ON TABLE ledger_adjustments IS 'platform: postings that administrators ask for, and who approved them';
GRANT SELECT, INSERT, UPDATE ON ledger_adjustments TO gpuaas_system;
INSERT INTO lifecycle_transitions VALUES ('ledger_adjustment', 'proposed', 'posted'), ('ledger_adjustment', 'proposed', 'rejected');
CREATE TRIGGER ledger_adjustments_lifecycle BEFORE UPDATE OF state ON ledger_adjustments
    FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('ledger_adjustment');

-- ── reconciliation ───────────────────────────────────────────────────────────────────────────────────
CREATE TABLE billing_findings (
    id            uuid PRIMARY KEY,
    kind          text        NOT NULL CHECK (kind IN ('missing_open_usage', 'orphan_open_usage', 'unbilled_closed_usage',
                      'ledger_usage_mismatch', 'held_mismatch', 'chain_broken', 'provider_missing', 'provider_extra', 'provider_amount')),
    subject       text        NOT NULL,
    org_id        uuid,
    detail        jsonb       NOT NULL,
    first_seen_at timestamptz NOT NULL,
    last_seen_at  timestamptz NOT NULL,
    resolved_at   timestamptz
);
CREATE UNIQUE INDEX billing_findings_open ON billing_findings (kind, subject) WHERE resolved_at IS NULL;
COMMENT ON TABLE billing_findings IS 'platform: where books and world disagree; looked at by people, never mended by the product';
GRANT SELECT, INSERT, UPDATE ON billing_findings TO gpuaas_system;
