-- Rules that money is held to: promotional credit first, refunds whose sending is not known, and changes that need a second
-- person. Single writers: the `billing` crate for the first, `payments` for refunds, `identity` for changes.

-- ── promotional credit ───────────────────────────────────────────────────────────────────────────────
-- Sets the cost of the first time aside for each allocation of a launch and makes their meters. Answers `ok`,
-- `insufficient_balance` or `budget_blocked`; in the latter two nothing was written.
CREATE OR REPLACE FUNCTION meters_hold(
    p_org uuid, p_project uuid, p_person uuid, p_now timestamptz, p_hold_seconds bigint, p_sku text, p_unit text, p_units integer,
    p_price bigint, p_currency text, p_posting uuid, p_actor_kind text, p_actor uuid, p_correlation uuid,
    m_ids uuid[], m_allocations uuid[],
    OUT answer text, OUT available bigint, OUT needed bigint
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_chain ledger_chains;
    v_last  ledger_postings;
    v_each  bigint := (p_price * p_units * p_hold_seconds + 3599) / 3600;
    v_count bigint := cardinality(m_ids);
    v_promo bigint;
BEGIN
    needed := v_each * v_count;
    v_chain := ledger_lock(p_org, p_currency);
    SELECT * INTO v_last FROM ledger_postings WHERE org_id = p_org AND seq = v_chain.seq AND posted_at = v_chain.posted_at;
    available := coalesce(v_last.prepaid_after + v_last.promo_after, 0);
    IF EXISTS (SELECT FROM budgets b JOIN budget_progress g USING (project_id) WHERE b.project_id = p_project AND b.org_id = p_org
        AND b.action IN ('block', 'release') AND g.crossed_at IS NOT NULL
        -- The budget may have been raised since.
        AND g.spent_minor::numeric * 100 >= b.amount_minor::numeric * b.threshold_percent
        AND g.month = date_trunc('month', p_now AT TIME ZONE 'UTC')::date) THEN
        answer := 'budget_blocked';
        RETURN;
    END IF;
    IF available < needed OR (available <= 0 AND p_price * p_units > 0) THEN
        answer := 'insufficient_balance';
        RETURN;
    END IF;
    answer := 'ok';
    -- Promotional credit is set aside before money.
    v_promo := least(needed, greatest(coalesce(v_last.promo_after, 0), 0));
    INSERT INTO meters (id, org_id, project_id, source, allocation_id, person_id, sku, unit, units, unit_price_minor, currency,
            state, hold_minor, hold_remaining, hold_promo, created_at)
        SELECT id, p_org, p_project, 'allocation', allocation, p_person, p_sku, p_unit, p_units, p_price, p_currency,
            'held', v_each, v_each, greatest(least(v_each, v_promo - (n - 1) * v_each), 0), p_now
        FROM unnest(m_ids, m_allocations) WITH ORDINALITY AS m (id, allocation, n);
    IF v_each > 0 THEN
        PERFORM ledger_append(p_org, p_currency, p_now, p_posting, 'hold', NULL, 'set aside for a launch', NULL,
            p_actor_kind, p_actor, p_correlation, accounts, amounts, projects, allocations, array_fill(NULL::uuid, ARRAY[n]),
            meters, array_fill(NULL::timestamptz, ARRAY[n]), array_fill(NULL::timestamptz, ARRAY[n]))
        FROM (
            SELECT array_agg(account ORDER BY rank, id), array_agg(amount ORDER BY rank, id), array_agg(p_project ORDER BY rank, id),
                array_agg(allocation ORDER BY rank, id), array_agg(id ORDER BY rank, id), count(*)::integer
            FROM (
                SELECT 1, 'prepaid', -v_each, id, allocation FROM unnest(m_ids, m_allocations) AS m (id, allocation)
                UNION ALL SELECT 2, 'held', v_each, id, allocation FROM unnest(m_ids, m_allocations) AS m (id, allocation)
                UNION ALL SELECT 3, 'promo', -v_promo, NULL, NULL WHERE v_promo > 0
                UNION ALL SELECT 4, 'prepaid', v_promo, NULL, NULL WHERE v_promo > 0
            ) AS l (rank, account, amount, id, allocation)
        ) AS a (accounts, amounts, projects, allocations, meters, n);
    END IF;
END $$;

-- Gives back what is set aside for a meter; the chain is locked by the caller's posting.
CREATE OR REPLACE FUNCTION meter_hold_release(p_meter meters, p_now timestamptz, p_posting uuid, p_correlation uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_promo bigint;
BEGIN
    IF p_meter.hold_remaining > 0 THEN
        v_promo := hold_promo_unused(p_meter.hold_minor, p_meter.hold_remaining, p_meter.hold_promo);
        PERFORM ledger_append(p_meter.org_id, p_meter.currency, p_now, p_posting, 'hold_release', NULL,
            'what was set aside is not needed any more', NULL, 'system', NULL, p_correlation,
            array_agg(l.account), array_agg(l.amount), array_agg(p_meter.project_id), array_agg(p_meter.allocation_id),
            array_agg(p_meter.app_instance_id), array_agg(p_meter.id), array_agg(NULL::timestamptz), array_agg(NULL::timestamptz))
        FROM (VALUES ('held', -p_meter.hold_remaining), ('prepaid', p_meter.hold_remaining - v_promo), ('promo', v_promo))
            AS l (account, amount)
        WHERE l.amount <> 0;
    END IF;
END $$;

-- ── refunds ──────────────────────────────────────────────────────────────────────────────────────────
-- The provider forgets idempotency keys a day after the first call, so a refund may be sent again for less than that from
-- `first_attempt_at` on. One that was never attempted can be sent at any time. `unknown_since`: it may have been sent or not,
-- and a person has to settle it.
ALTER TABLE refunds ADD COLUMN first_attempt_at timestamptz, ADD COLUMN unknown_since timestamptz;
ALTER TABLE refunds ADD CONSTRAINT refunds_unknown CHECK (unknown_since IS NULL OR state = 'pending') NOT VALID;
ALTER TABLE refunds VALIDATE CONSTRAINT refunds_unknown;
-- Given up on when they were first taken, twenty hours after they were asked for: the provider never heard of these.
UPDATE refunds SET attempts = 0, next_attempt_at = now(), state_reason = 'it is sent to the provider'
    WHERE state = 'pending' AND provider_refund IS NULL AND attempts <= 1 AND next_attempt_at > now() + interval '1 year';
UPDATE refunds SET first_attempt_at = created_at WHERE attempts > 0 OR provider_refund IS NOT NULL;
UPDATE refunds SET unknown_since = now()
    WHERE state = 'pending' AND provider_refund IS NULL AND attempts > 1 AND next_attempt_at > now() + interval '1 year';

ALTER TABLE billing_findings DROP CONSTRAINT billing_findings_kind_check;
ALTER TABLE billing_findings ADD CONSTRAINT billing_findings_kind_check CHECK (kind IN ('missing_open_usage', 'orphan_open_usage',
    'unbilled_closed_usage', 'ledger_usage_mismatch', 'held_mismatch', 'chain_broken', 'provider_missing', 'provider_extra',
    'provider_amount', 'refund_unknown', 'clock_skew')) NOT VALID;
ALTER TABLE billing_findings VALIDATE CONSTRAINT billing_findings_kind_check;

-- ── changes that need a second person ────────────────────────────────────────────────────────────────
-- What decides when a second person is needed, and who that can be, is itself changed by two: one proposes, another applies.
CREATE TABLE sensitive_changes (
    id          uuid PRIMARY KEY,
    kind        text        NOT NULL CHECK (kind IN ('policy_set', 'policy_unset', 'platform_roles_set')),
    -- The policy key; nothing for platform roles.
    policy_key  text,
    -- Where a policy value holds: nowhere for the whole platform.
    org_id      uuid,
    -- Whose platform roles.
    user_id     uuid REFERENCES users,
    -- The policy value, or all the platform roles.
    value       jsonb,
    reason      text        NOT NULL,
    state       text        NOT NULL CHECK (state IN ('proposed', 'applied', 'rejected')),
    proposed_by uuid        NOT NULL,
    decided_by  uuid,
    -- Applied by one person: taking a right away, and appointing the second administrator of a new installation.
    alone       boolean     NOT NULL DEFAULT false,
    version     bigint      NOT NULL DEFAULT 1,
    created_at  timestamptz NOT NULL,
    updated_at  timestamptz NOT NULL,
    CHECK ((kind = 'platform_roles_set') = (user_id IS NOT NULL)),
    CHECK ((kind = 'platform_roles_set') = (policy_key IS NULL)),
    CHECK ((kind = 'policy_unset') = (value IS NULL)),
    CHECK ((state = 'proposed') = (decided_by IS NULL)),
    CHECK (state <> 'applied' OR alone = (decided_by = proposed_by)),
    CHECK (NOT alone OR (kind = 'platform_roles_set' AND state = 'applied'))
);
CREATE INDEX sensitive_changes_by_state ON sensitive_changes (state, id);
COMMENT ON TABLE sensitive_changes IS 'platform: changes of approval thresholds and of who may approve, and which two people made them';
GRANT SELECT, INSERT, UPDATE ON sensitive_changes TO gpuaas_system;
INSERT INTO lifecycle_transitions VALUES ('sensitive_change', 'proposed', 'applied'), ('sensitive_change', 'proposed', 'rejected');
CREATE TRIGGER sensitive_changes_lifecycle BEFORE UPDATE OF state ON sensitive_changes
    FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('sensitive_change');
