-- Identifiers that must never come back, as the file outside the database remembers them: the last block of unix ids, and
-- the certificates of nodes that have not expired.
CREATE OR REPLACE FUNCTION identifiers_snapshot() RETURNS jsonb
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT jsonb_build_object(
        'uid_block', (SELECT last_value FROM allocation_uids),
        'certificates', (SELECT coalesce(jsonb_agg(to_jsonb(c) - 'chain_pem' ORDER BY c.serial), '[]')
            FROM node_certificates c WHERE c.not_after > now()))
$$;
REVOKE ALL ON FUNCTION identifiers_snapshot FROM PUBLIC;
GRANT EXECUTE ON FUNCTION identifiers_snapshot TO gpuaas_system;
