-- Claims a key, or returns what was stored under it. A concurrent claim of the same key waits here until
-- the first transaction ends (bounded by lock_timeout).
CREATE OR REPLACE FUNCTION idempotency_claim(
    p_principal uuid, p_endpoint text, p_key text, p_hash bytea, p_now timestamptz,
    OUT claimed boolean, OUT same_request boolean, OUT status smallint, OUT body bytea
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO idempotency_records (principal_id, endpoint, key, request_hash, created_at)
        VALUES (p_principal, p_endpoint, p_key, p_hash, p_now) ON CONFLICT DO NOTHING;
    claimed := FOUND;
    same_request := true;
    IF NOT claimed THEN
        SELECT r.request_hash = p_hash, r.status, r.body INTO same_request, status, body
            FROM idempotency_records r WHERE r.principal_id = p_principal AND r.endpoint = p_endpoint AND r.key = p_key;
    END IF;
END $$;
REVOKE ALL ON FUNCTION idempotency_claim FROM PUBLIC;
GRANT EXECUTE ON FUNCTION idempotency_claim TO gpuaas_app, gpuaas_system;
