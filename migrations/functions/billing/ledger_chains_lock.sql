-- Locks the chains of these organizations to the end of the transaction, except those that somebody else has locked, and
-- answers which. In the order in which everybody locks several.
CREATE OR REPLACE FUNCTION ledger_chains_lock(p_orgs uuid[]) RETURNS SETOF uuid
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT c.org_id FROM ledger_chains c WHERE c.org_id = ANY (p_orgs) ORDER BY c.org_id FOR UPDATE SKIP LOCKED
$$;
REVOKE ALL ON FUNCTION ledger_chains_lock FROM PUBLIC;
GRANT EXECUTE ON FUNCTION ledger_chains_lock TO gpuaas_system;
