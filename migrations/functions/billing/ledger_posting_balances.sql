-- At commit: the lines are there, sum to zero, and the balances follow from those before.
CREATE OR REPLACE FUNCTION ledger_posting_balances() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
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
