-- The ledger: double entry, append-only, hash-chained per organization. Single writer: the `billing` crate, and it
-- writes through the functions at the end of this file only; no service role can insert, change or remove a row.
--
-- A posting is one entry of an organization's chain; its lines say what each account gained (sources go down), and
-- sum to zero. A posting carries the balances after it: reading a balance is reading the last posting, however many
-- there are, and nothing that can change holds one. Its hash covers the hash before it, its own fields and the digest
-- of its lines, so one link may hold a whole batch of usage.
--
-- Postings and lines are kept by month. The months are made by ledger_month, as they are needed.

CREATE TABLE ledger_chains (
    org_id    uuid PRIMARY KEY,
    currency  text        NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
    seq       bigint      NOT NULL,
    posted_at timestamptz NOT NULL,
    hash      bytea       NOT NULL,
    -- The posting that was signed last.
    checkpoint_seq bigint NOT NULL DEFAULT 0
);
COMMENT ON TABLE ledger_chains IS 'tenant: where each ledger chain ends; written by ledger_append and ledger_checkpoints_add only';
ALTER TABLE ledger_chains ENABLE ROW LEVEL SECURITY;
CREATE POLICY ledger_chain_tenant ON ledger_chains FOR SELECT TO gpuaas_app USING (org_id = (SELECT current_org()));
CREATE POLICY ledger_chain_system ON ledger_chains FOR SELECT TO gpuaas_system USING (true);
GRANT SELECT ON ledger_chains TO gpuaas_app, gpuaas_system;

CREATE TABLE ledger_postings (
    org_id            uuid        NOT NULL,
    seq               bigint      NOT NULL CHECK (seq > 0),
    posted_at         timestamptz NOT NULL,
    id                uuid        NOT NULL,
    kind              text        NOT NULL CHECK (kind IN ('topup', 'usage', 'hold', 'hold_release', 'refund', 'credit', 'promo', 'correction')),
    currency          text        NOT NULL,
    -- What it was made for, outside of the ledger: a payment, an allocation, an adjustment.
    reference         text,
    reason            text        NOT NULL,
    corrects_entry_id uuid,
    actor_kind        text        NOT NULL CHECK (actor_kind IN ('user', 'service_account', 'system')),
    actor_id          uuid,
    correlation_id    uuid        NOT NULL,
    lines             integer     NOT NULL CHECK (lines >= 2),
    lines_digest      bytea       NOT NULL,
    -- Of the organization's accounts, after this posting.
    prepaid_after     bigint      NOT NULL,
    held_after        bigint      NOT NULL,
    promo_after       bigint      NOT NULL,
    disputed_after    bigint      NOT NULL,
    prev_hash         bytea       NOT NULL,
    hash              bytea       NOT NULL,
    -- The transaction that wrote it: lines can only join while it runs.
    xact              xid8        NOT NULL DEFAULT pg_current_xact_id(),
    PRIMARY KEY (org_id, seq, posted_at),
    CHECK ((kind = 'correction') OR corrects_entry_id IS NULL),
    CHECK ((actor_kind = 'system') = (actor_id IS NULL))
) PARTITION BY RANGE (posted_at);
CREATE INDEX ledger_postings_by_id ON ledger_postings (org_id, id);
COMMENT ON TABLE ledger_postings IS 'tenant: append-only, hash-chained; written by ledger_append only';

CREATE TABLE ledger_lines (
    org_id          uuid        NOT NULL,
    seq             bigint      NOT NULL,
    line            integer     NOT NULL CHECK (line > 0),
    posted_at       timestamptz NOT NULL,
    account         text        NOT NULL CHECK (account IN ('prepaid', 'held', 'promo', 'disputed', 'revenue', 'cash_stripe', 'refunds', 'credits_granted')),
    amount_minor    bigint      NOT NULL CHECK (amount_minor <> 0),
    project_id      uuid,
    allocation_id   uuid,
    app_instance_id uuid,
    meter_id        uuid,
    window_start    timestamptz,
    window_end      timestamptz,
    correlation_id  uuid        NOT NULL,
    leaf            bytea       NOT NULL,
    PRIMARY KEY (org_id, seq, line, posted_at)
) PARTITION BY RANGE (posted_at);
COMMENT ON TABLE ledger_lines IS 'tenant: append-only; what each account gained by a posting; written by ledger_append only';

-- A posting for something outside of the ledger is made once: a payment cannot be credited twice.
CREATE TABLE ledger_references (
    kind      text   NOT NULL,
    reference text   NOT NULL,
    org_id    uuid   NOT NULL,
    seq       bigint NOT NULL,
    PRIMARY KEY (kind, reference)
);
COMMENT ON TABLE ledger_references IS 'platform: append-only; what postings were made for, each once; written by ledger_append only';
GRANT SELECT ON ledger_references TO gpuaas_system;
CREATE TRIGGER ledger_references_append_only BEFORE UPDATE OR DELETE ON ledger_references FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER ledger_references_no_truncate BEFORE TRUNCATE ON ledger_references FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

ALTER TABLE ledger_postings ENABLE ROW LEVEL SECURITY;
CREATE POLICY ledger_postings_tenant ON ledger_postings FOR SELECT TO gpuaas_app USING (org_id = (SELECT current_org()));
CREATE POLICY ledger_postings_system ON ledger_postings FOR SELECT TO gpuaas_system USING (true);
GRANT SELECT ON ledger_postings TO gpuaas_app, gpuaas_system;
CREATE TRIGGER ledger_postings_append_only BEFORE UPDATE OR DELETE ON ledger_postings FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER ledger_postings_no_truncate BEFORE TRUNCATE ON ledger_postings FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE ledger_lines ENABLE ROW LEVEL SECURITY;
CREATE POLICY ledger_lines_tenant ON ledger_lines FOR SELECT TO gpuaas_app USING (org_id = (SELECT current_org()));
CREATE POLICY ledger_lines_system ON ledger_lines FOR SELECT TO gpuaas_system USING (true);
GRANT SELECT ON ledger_lines TO gpuaas_app, gpuaas_system;
CREATE TRIGGER ledger_lines_append_only BEFORE UPDATE OR DELETE ON ledger_lines FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER ledger_lines_no_truncate BEFORE TRUNCATE ON ledger_lines FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- Signed heads, one a day for each chain that moved: who cuts a chain off or writes it anew cannot make these. Each
-- names the one before it, and the chain names the last, so that none can be taken away unseen.
CREATE TABLE ledger_checkpoints (
    org_id     uuid        NOT NULL,
    day        date        NOT NULL,
    prev_seq   bigint      NOT NULL,
    seq        bigint      NOT NULL CHECK (seq > prev_seq),
    hash       bytea       NOT NULL,
    signed_at  timestamptz NOT NULL,
    key_id     text        NOT NULL,
    public_key bytea       NOT NULL,
    signature  bytea       NOT NULL,
    PRIMARY KEY (org_id, day)
);
CREATE UNIQUE INDEX ledger_checkpoints_by_seq ON ledger_checkpoints (org_id, seq);
COMMENT ON TABLE ledger_checkpoints IS 'tenant: append-only; signed heads of ledger chains; written by ledger_checkpoints_add only';
ALTER TABLE ledger_checkpoints ENABLE ROW LEVEL SECURITY;
CREATE POLICY ledger_checkpoints_tenant ON ledger_checkpoints FOR SELECT TO gpuaas_app USING (org_id = (SELECT current_org()));
CREATE POLICY ledger_checkpoints_system ON ledger_checkpoints FOR SELECT TO gpuaas_system USING (true);
GRANT SELECT ON ledger_checkpoints TO gpuaas_app, gpuaas_system;
CREATE TRIGGER ledger_checkpoints_append_only BEFORE UPDATE OR DELETE ON ledger_checkpoints FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER ledger_checkpoints_no_truncate BEFORE TRUNCATE ON ledger_checkpoints FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- ── months ───────────────────────────────────────────────────────────────────────────────────────────
-- Makes the part of a table that holds the month of `p_at`, if it is not there. Attached rather than created in
-- place, which would lock everybody else out of the table.
CREATE FUNCTION month_ensure(p_table text, p_at timestamptz) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_month timestamp := date_trunc('month', p_at AT TIME ZONE 'UTC');
    v_name  text := p_table || to_char(v_month, '"_"YYYY"m"MM');
BEGIN
    IF p_table NOT IN ('ledger_postings', 'ledger_lines', 'usage_records') THEN
        RAISE EXCEPTION '% is not kept by month', p_table;
    END IF;
    IF to_regclass(v_name) IS NOT NULL THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('month:' || v_name, 0));
    -- Asked of the table itself: what the session remembers of names may be older than the lock.
    IF EXISTS (SELECT FROM pg_class WHERE relname = v_name AND relnamespace = 'public'::regnamespace) THEN
        RETURN;
    END IF;
    EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', v_name, p_table);
    EXECUTE format('COMMENT ON TABLE %I IS %L', v_name, 'tenant: append-only; a month of ' || p_table);
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', v_name);
    EXECUTE format('CREATE TRIGGER %I BEFORE TRUNCATE ON %I FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()',
        v_name || '_no_truncate', v_name);
    EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', p_table, v_name,
        v_month AT TIME ZONE 'UTC', (v_month + interval '1 month') AT TIME ZONE 'UTC');
END $$;

-- ── canonical form ───────────────────────────────────────────────────────────────────────────────────
-- Binary: numbers and times (microseconds since 2000) big-endian, text with its length before it, and a byte that
-- says whether something optional is there. `kernel::ledger` builds the same.
CREATE FUNCTION ledger_text(t text) RETURNS bytea LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT int4send(octet_length(t)) || convert_to(t, 'UTF8') $$;
CREATE FUNCTION ledger_maybe(b bytea) RETURNS bytea LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT coalesce('\x01'::bytea || b, '\x00'::bytea) $$;

CREATE FUNCTION ledger_leaf(
    p_line integer, p_account text, p_amount bigint, p_project uuid, p_allocation uuid, p_app uuid, p_meter uuid,
    p_start timestamptz, p_end timestamptz, p_correlation uuid
) RETURNS bytea LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT sha256(int4send(p_line) || ledger_text(p_account) || int8send(p_amount) || ledger_maybe(uuid_send(p_project))
        || ledger_maybe(uuid_send(p_allocation)) || ledger_maybe(uuid_send(p_app)) || ledger_maybe(uuid_send(p_meter))
        || ledger_maybe(timestamptz_send(p_start)) || ledger_maybe(timestamptz_send(p_end)) || uuid_send(p_correlation))
$$;

CREATE FUNCTION ledger_genesis(p_org uuid) RETURNS bytea LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT sha256(convert_to('gpuaas-ledger:' || p_org, 'UTF8')) $$;

CREATE FUNCTION ledger_hash(p ledger_postings) RETURNS bytea LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT sha256(p.prev_hash || '\x01'::bytea || uuid_send(p.org_id) || int8send(p.seq) || timestamptz_send(p.posted_at)
        || uuid_send(p.id) || ledger_text(p.kind) || ledger_text(p.currency)
        || ledger_maybe(ledger_text(p.reference)) || ledger_text(p.reason) || ledger_maybe(uuid_send(p.corrects_entry_id))
        || ledger_text(p.actor_kind) || ledger_maybe(uuid_send(p.actor_id)) || uuid_send(p.correlation_id)
        || int4send(p.lines) || p.lines_digest
        || int8send(p.prepaid_after) || int8send(p.held_after) || int8send(p.promo_after) || int8send(p.disputed_after))
$$;

-- ── what the database holds the ledger to ────────────────────────────────────────────────────────────
-- Lines join a posting only in the transaction that made it, so what was checked at its end stays true.
CREATE FUNCTION ledger_lines_join() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_bad record;
BEGIN
    SELECT l.org_id, l.seq INTO v_bad FROM (SELECT DISTINCT org_id, seq, posted_at FROM new_lines) l
        WHERE NOT EXISTS (SELECT FROM ledger_postings p WHERE p.org_id = l.org_id AND p.seq = l.seq
            AND p.posted_at = l.posted_at AND p.xact = pg_current_xact_id()) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'ledger lines of % % have no posting in this transaction', v_bad.org_id, v_bad.seq
            USING ERRCODE = 'check_violation', CONSTRAINT = 'ledger_lines_join';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER ledger_lines_join AFTER INSERT ON ledger_lines REFERENCING NEW TABLE AS new_lines
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_lines_join();

-- At commit: the lines are there, sum to zero, and the balances follow from those before.
CREATE FUNCTION ledger_posting_balances() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_sum   record;
    v_prev  record;
    v_found boolean;
BEGIN
    SELECT count(*) AS lines, coalesce(sum(amount_minor), 1) AS total,
        coalesce(sum(amount_minor) FILTER (WHERE account = 'prepaid'), 0) AS prepaid,
        coalesce(sum(amount_minor) FILTER (WHERE account = 'held'), 0) AS held,
        coalesce(sum(amount_minor) FILTER (WHERE account = 'promo'), 0) AS promo,
        coalesce(sum(amount_minor) FILTER (WHERE account = 'disputed'), 0) AS disputed
        INTO v_sum FROM ledger_lines WHERE org_id = NEW.org_id AND seq = NEW.seq AND posted_at = NEW.posted_at;
    IF v_sum.total <> 0 OR v_sum.lines <> NEW.lines THEN
        RAISE EXCEPTION 'ledger posting % % does not sum to zero (% in % lines)', NEW.org_id, NEW.seq, v_sum.total, v_sum.lines
            USING ERRCODE = 'check_violation', CONSTRAINT = 'ledger_posting_balances';
    END IF;
    -- It is nearly always in the same month; there is no need to look through all of them.
    SELECT prepaid_after, held_after, promo_after, disputed_after INTO v_prev FROM ledger_postings
        WHERE org_id = NEW.org_id AND seq = NEW.seq - 1
            AND posted_at BETWEEN date_trunc('month', NEW.posted_at, 'UTC') AND NEW.posted_at;
    v_found := FOUND OR NEW.seq = 1;
    IF NOT v_found THEN
        SELECT prepaid_after, held_after, promo_after, disputed_after INTO v_prev FROM ledger_postings
            WHERE org_id = NEW.org_id AND seq = NEW.seq - 1;
        v_found := FOUND;
    END IF;
    IF NOT v_found
        OR NEW.prepaid_after <> coalesce(v_prev.prepaid_after, 0) + v_sum.prepaid
        OR NEW.held_after <> coalesce(v_prev.held_after, 0) + v_sum.held
        OR NEW.promo_after <> coalesce(v_prev.promo_after, 0) + v_sum.promo
        OR NEW.disputed_after <> coalesce(v_prev.disputed_after, 0) + v_sum.disputed THEN
        RAISE EXCEPTION 'the balances of ledger posting % % do not follow from its lines', NEW.org_id, NEW.seq
            USING ERRCODE = 'check_violation', CONSTRAINT = 'ledger_posting_balances';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER ledger_posting_balances AFTER INSERT ON ledger_postings
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION ledger_posting_balances();

-- ── writing ──────────────────────────────────────────────────────────────────────────────────────────
-- The end of a chain, locked: from here to the end of the transaction nobody else posts to it. Made when it is not there.
CREATE FUNCTION ledger_lock(p_org uuid, p_currency text) RETURNS ledger_chains
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_chain ledger_chains;
BEGIN
    IF called_by_app() AND p_org IS DISTINCT FROM current_org() THEN
        RAISE EXCEPTION 'the ledger of another organization' USING ERRCODE = 'insufficient_privilege';
    END IF;
    SELECT * INTO v_chain FROM ledger_chains WHERE org_id = p_org FOR UPDATE;
    IF NOT FOUND THEN
        INSERT INTO ledger_chains VALUES (p_org, p_currency, 0, '-infinity', ledger_genesis(p_org)) ON CONFLICT DO NOTHING;
        SELECT * INTO v_chain FROM ledger_chains WHERE org_id = p_org FOR UPDATE;
    END IF;
    IF v_chain.currency <> p_currency THEN
        RAISE EXCEPTION 'the ledger of % is kept in %, not in %', p_org, v_chain.currency, p_currency
            USING ERRCODE = 'check_violation', CONSTRAINT = 'ledger_currency';
    END IF;
    RETURN v_chain;
END $$;

-- Appends one posting; every argument that is a list has an element for each line. Times never go back along a chain.
-- Nothing is done, and nothing answered, when the reference was posted before.
CREATE FUNCTION ledger_append(
    p_org uuid, p_currency text, p_at timestamptz, p_id uuid, p_kind text, p_reference text, p_reason text, p_corrects uuid,
    p_actor_kind text, p_actor_id uuid, p_correlation uuid,
    l_accounts text[], l_amounts bigint[], l_projects uuid[], l_allocations uuid[], l_apps uuid[], l_meters uuid[],
    l_starts timestamptz[], l_ends timestamptz[]
) RETURNS ledger_postings LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_chain ledger_chains;
    v_prev  ledger_postings;
    v_new   ledger_postings;
BEGIN
    v_chain := ledger_lock(p_org, p_currency);
    -- Looked up after the chain is locked, by a statement of its own: it sees what was posted while this one waited.
    IF p_reference IS NOT NULL AND EXISTS (
        SELECT FROM ledger_references r WHERE r.kind = p_kind AND r.reference = p_reference) THEN
        RETURN NULL;
    END IF;
    SELECT * INTO v_prev FROM ledger_postings
        WHERE org_id = p_org AND seq = v_chain.seq AND posted_at = v_chain.posted_at;
    v_new.org_id := p_org;
    v_new.seq := v_chain.seq + 1;
    v_new.posted_at := greatest(p_at, v_chain.posted_at);
    v_new.id := p_id;
    v_new.kind := p_kind;
    v_new.currency := p_currency;
    v_new.reference := p_reference;
    v_new.reason := p_reason;
    v_new.corrects_entry_id := p_corrects;
    v_new.actor_kind := p_actor_kind;
    v_new.actor_id := p_actor_id;
    v_new.correlation_id := p_correlation;
    v_new.prev_hash := v_chain.hash;
    v_new.xact := pg_current_xact_id();
    SELECT count(*), sha256(coalesce(string_agg(ledger_leaf(n::integer, account, amount, project, allocation, app, meter, starts,
            ends, p_correlation), ''::bytea ORDER BY n), ''::bytea)),
        coalesce(v_prev.prepaid_after, 0) + coalesce(sum(amount) FILTER (WHERE account = 'prepaid'), 0),
        coalesce(v_prev.held_after, 0) + coalesce(sum(amount) FILTER (WHERE account = 'held'), 0),
        coalesce(v_prev.promo_after, 0) + coalesce(sum(amount) FILTER (WHERE account = 'promo'), 0),
        coalesce(v_prev.disputed_after, 0) + coalesce(sum(amount) FILTER (WHERE account = 'disputed'), 0)
        INTO v_new.lines, v_new.lines_digest, v_new.prepaid_after, v_new.held_after, v_new.promo_after, v_new.disputed_after
        FROM unnest(l_accounts, l_amounts, l_projects, l_allocations, l_apps, l_meters, l_starts, l_ends)
            WITH ORDINALITY AS l (account, amount, project, allocation, app, meter, starts, ends, n);
    v_new.hash := ledger_hash(v_new);
    PERFORM month_ensure('ledger_postings', v_new.posted_at), month_ensure('ledger_lines', v_new.posted_at);
    INSERT INTO ledger_postings SELECT (v_new).*;
    INSERT INTO ledger_lines
        SELECT p_org, v_new.seq, n, v_new.posted_at, account, amount, project, allocation, app, meter, starts, ends, p_correlation,
            ledger_leaf(n::integer, account, amount, project, allocation, app, meter, starts, ends, p_correlation)
        FROM unnest(l_accounts, l_amounts, l_projects, l_allocations, l_apps, l_meters, l_starts, l_ends)
            WITH ORDINALITY AS l (account, amount, project, allocation, app, meter, starts, ends, n);
    IF p_reference IS NOT NULL THEN
        INSERT INTO ledger_references VALUES (p_kind, p_reference, p_org, v_new.seq);
    END IF;
    UPDATE ledger_chains SET seq = v_new.seq, posted_at = v_new.posted_at, hash = v_new.hash WHERE org_id = p_org;
    RETURN v_new;
END $$;

-- Keeps what was signed for a day; an element for each chain. Chains that are in use, or that somebody else signed
-- meanwhile, are left for the next time. Answers how many were kept.
CREATE FUNCTION ledger_checkpoints_add(
    p_day date, p_signed_at timestamptz, p_key_id text, p_public_key bytea,
    c_orgs uuid[], c_prevs bigint[], c_seqs bigint[], c_hashes bytea[], c_signatures bytea[]
) RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    WITH locked AS MATERIALIZED (
        SELECT c.org_id, c.checkpoint_seq FROM ledger_chains c WHERE c.org_id = ANY (c_orgs)
        ORDER BY c.org_id FOR UPDATE SKIP LOCKED
    ), added AS (
        INSERT INTO ledger_checkpoints (org_id, day, prev_seq, seq, hash, signed_at, key_id, public_key, signature)
            SELECT g.org_id, p_day, g.prev, g.seq, g.hash, p_signed_at, p_key_id, p_public_key, g.signature
            FROM unnest(c_orgs, c_prevs, c_seqs, c_hashes, c_signatures) AS g (org_id, prev, seq, hash, signature)
            JOIN locked l ON l.org_id = g.org_id AND l.checkpoint_seq = g.prev
        ON CONFLICT DO NOTHING RETURNING org_id, seq
    ), moved AS (
        UPDATE ledger_chains c SET checkpoint_seq = a.seq FROM added a WHERE c.org_id = a.org_id RETURNING c.org_id
    )
    SELECT count(*) FROM moved
$$;

REVOKE ALL ON FUNCTION month_ensure, ledger_lock, ledger_append, ledger_checkpoints_add FROM PUBLIC;
-- Requests reach the ledger through narrower functions only: a launch can hold, and nothing else.
GRANT EXECUTE ON FUNCTION ledger_lock, ledger_append, ledger_checkpoints_add TO gpuaas_system;
GRANT EXECUTE ON FUNCTION month_ensure TO gpuaas_system;
