-- The end of a chain, locked: from here to the end of the transaction nobody else posts to it. Made when it is not there.
CREATE OR REPLACE FUNCTION ledger_lock(p_org uuid, p_currency text) RETURNS ledger_chains
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_chain ledger_chains;
BEGIN
    IF called_by_app() AND p_org IS DISTINCT FROM current_org() THEN
        RAISE EXCEPTION 'the ledger of another organization' USING ERRCODE = 'insufficient_privilege';
    END IF;
    SELECT * INTO v_chain FROM ledger_chains WHERE org_id = p_org FOR UPDATE;
    IF NOT FOUND THEN
        INSERT INTO ledger_chains (org_id, currency, seq, posted_at, hash)
            VALUES (p_org, p_currency, 0, '-infinity', ledger_genesis(p_org)) ON CONFLICT DO NOTHING;
        SELECT * INTO v_chain FROM ledger_chains WHERE org_id = p_org FOR UPDATE;
    END IF;
    IF v_chain.currency <> p_currency THEN
        RAISE EXCEPTION 'the ledger of % is kept in %, not in %', p_org, v_chain.currency, p_currency
            USING ERRCODE = 'check_violation', CONSTRAINT = 'ledger_currency';
    END IF;
    RETURN v_chain;
END $$;
REVOKE ALL ON FUNCTION ledger_lock FROM PUBLIC;
GRANT EXECUTE ON FUNCTION ledger_lock TO gpuaas_system;
