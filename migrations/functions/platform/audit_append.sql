-- Its arguments of the release before; drop this line with the next.
DROP FUNCTION IF EXISTS audit_append(uuid, uuid, timestamptz, text, uuid, text, uuid, text, text, text, uuid, text,
    text, uuid, text, bytea, bytea, bigint);
CREATE OR REPLACE FUNCTION audit_append(p_entry audit_entry) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_seq  bigint;
    v_prev bytea;
    v_text text;
    v_hash bytea;
BEGIN
    -- Locks the head: appends to one chain are serial, chains are independent.
    SELECT seq, hash INTO v_seq, v_prev FROM audit_chains WHERE org_id = p_entry.org_id FOR UPDATE;
    IF NOT FOUND THEN
        INSERT INTO audit_chains (org_id, seq, hash)
            VALUES (p_entry.org_id, 0, sha256(convert_to('gpuaas-audit:' || p_entry.org_id, 'UTF8')))
            ON CONFLICT DO NOTHING;
        SELECT seq, hash INTO v_seq, v_prev FROM audit_chains WHERE org_id = p_entry.org_id FOR UPDATE;
    END IF;
    v_seq := v_seq + 1;
    v_text := canonical_field(CASE WHEN p_entry.repeats IS NULL THEN '1' ELSE '2' END)
        || canonical_field(p_entry.id::text) || canonical_field(p_entry.org_id::text)
        || canonical_field(v_seq::text) || canonical_field(((extract(epoch FROM p_entry.at) * 1000000)::bigint)::text)
        || canonical_field(p_entry.actor_kind) || canonical_field(p_entry.actor_id::text)
        || canonical_field(p_entry.actor_role)
        || canonical_field(p_entry.on_behalf_of::text) || canonical_field(p_entry.action)
        || canonical_field(p_entry.target_kind)
        || canonical_field(p_entry.target_id) || canonical_field(p_entry.project_id::text)
        || canonical_field(p_entry.result)
        || canonical_field(p_entry.code) || canonical_field(p_entry.correlation_id::text)
        || canonical_field(p_entry.source_ip)
        || canonical_field(encode(p_entry.before_digest, 'hex')) || canonical_field(encode(p_entry.after_digest, 'hex'));
    IF p_entry.repeats IS NOT NULL THEN
        v_text := v_text || canonical_field(p_entry.repeats::text);
    END IF;
    v_hash := sha256(v_prev || convert_to(v_text, 'UTF8'));
    INSERT INTO audit_logs (id, org_id, seq, at, actor_kind, actor_id, actor_role, on_behalf_of, action, target_kind, target_id,
            project_id, result, code, correlation_id, source_ip, before_digest, after_digest, prev_hash, hash, repeats)
        VALUES (p_entry.id, p_entry.org_id, v_seq, p_entry.at, p_entry.actor_kind, p_entry.actor_id, p_entry.actor_role,
            p_entry.on_behalf_of, p_entry.action, p_entry.target_kind, p_entry.target_id,
            p_entry.project_id, p_entry.result, p_entry.code, p_entry.correlation_id, p_entry.source_ip,
            p_entry.before_digest, p_entry.after_digest, v_prev, v_hash, p_entry.repeats);
    UPDATE audit_chains SET seq = v_seq, hash = v_hash WHERE org_id = p_entry.org_id;
    RETURN v_seq;
END $$;
REVOKE ALL ON FUNCTION audit_append FROM PUBLIC;
GRANT EXECUTE ON FUNCTION audit_append TO gpuaas_app, gpuaas_system;
