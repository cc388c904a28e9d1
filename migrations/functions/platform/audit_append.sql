CREATE OR REPLACE FUNCTION audit_append(
    p_id uuid, p_org uuid, p_at timestamptz, p_actor_kind text, p_actor_id uuid, p_actor_role text,
    p_on_behalf_of uuid, p_action text, p_target_kind text, p_target_id text, p_project uuid,
    p_result text, p_code text, p_correlation uuid, p_source_ip text, p_before bytea, p_after bytea,
    p_repeats bigint DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_seq  bigint;
    v_prev bytea;
    v_text text;
    v_hash bytea;
BEGIN
    -- Locks the head: appends to one chain are serial, chains are independent.
    SELECT seq, hash INTO v_seq, v_prev FROM audit_chains WHERE org_id = p_org FOR UPDATE;
    IF NOT FOUND THEN
        INSERT INTO audit_chains (org_id, seq, hash)
            VALUES (p_org, 0, sha256(convert_to('gpuaas-audit:' || p_org, 'UTF8'))) ON CONFLICT DO NOTHING;
        SELECT seq, hash INTO v_seq, v_prev FROM audit_chains WHERE org_id = p_org FOR UPDATE;
    END IF;
    v_seq := v_seq + 1;
    v_text := canonical_field(CASE WHEN p_repeats IS NULL THEN '1' ELSE '2' END)
        || canonical_field(p_id::text) || canonical_field(p_org::text)
        || canonical_field(v_seq::text) || canonical_field(((extract(epoch FROM p_at) * 1000000)::bigint)::text)
        || canonical_field(p_actor_kind) || canonical_field(p_actor_id::text) || canonical_field(p_actor_role)
        || canonical_field(p_on_behalf_of::text) || canonical_field(p_action) || canonical_field(p_target_kind)
        || canonical_field(p_target_id) || canonical_field(p_project::text) || canonical_field(p_result)
        || canonical_field(p_code) || canonical_field(p_correlation::text) || canonical_field(p_source_ip)
        || canonical_field(encode(p_before, 'hex')) || canonical_field(encode(p_after, 'hex'));
    IF p_repeats IS NOT NULL THEN
        v_text := v_text || canonical_field(p_repeats::text);
    END IF;
    v_hash := sha256(v_prev || convert_to(v_text, 'UTF8'));
    INSERT INTO audit_logs (id, org_id, seq, at, actor_kind, actor_id, actor_role, on_behalf_of, action, target_kind, target_id,
            project_id, result, code, correlation_id, source_ip, before_digest, after_digest, prev_hash, hash, repeats)
        VALUES (p_id, p_org, v_seq, p_at, p_actor_kind, p_actor_id, p_actor_role, p_on_behalf_of, p_action, p_target_kind,
            p_target_id, p_project, p_result, p_code, p_correlation, p_source_ip, p_before, p_after, v_prev, v_hash, p_repeats);
    UPDATE audit_chains SET seq = v_seq, hash = v_hash WHERE org_id = p_org;
    RETURN v_seq;
END $$;
REVOKE ALL ON FUNCTION audit_append FROM PUBLIC;
GRANT EXECUTE ON FUNCTION audit_append TO gpuaas_app, gpuaas_system;
