-- Continues after a restore above whatever may have been given since the backup: unix ids go on after those that the
-- outside remembers, and a margin for those that it does not. A certificate that was revoked since stays revoked, and
-- one that was given since is known. Answers the block of unix ids after which the next one comes.
CREATE OR REPLACE FUNCTION identifiers_restore(p_remembered jsonb) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    margin CONSTANT bigint := 64 * 16384;
    v_block bigint;
    v_certificates jsonb := coalesce(p_remembered -> 'certificates', '[]');
BEGIN
    SELECT greatest(last_value, coalesce((p_remembered ->> 'uid_block')::bigint, 0)) + margin INTO v_block
        FROM allocation_uids;
    PERFORM setval('allocation_uids', v_block);
    UPDATE node_certificates known SET revoked_at = c.revoked_at, reason = c.reason, superseded = c.superseded
        FROM jsonb_populate_recordset(NULL::node_certificates, v_certificates) AS c
        WHERE known.serial = c.serial AND known.revoked_at IS NULL AND c.revoked_at IS NOT NULL;
    -- In the order in which they were given: each supersedes the one before.
    INSERT INTO node_certificates (serial, node_id, authority_id, fingerprint, not_before, not_after, revoked_at, reason,
        created_at, key_sha256, renewed_from, first_used_at, superseded)
    SELECT c.serial, c.node_id, c.authority_id, c.fingerprint, c.not_before, c.not_after, c.revoked_at, c.reason,
        c.created_at, c.key_sha256, c.renewed_from, c.first_used_at, c.superseded
    FROM jsonb_populate_recordset(NULL::node_certificates, v_certificates) AS c
    WHERE NOT EXISTS (SELECT FROM node_certificates known WHERE known.serial = c.serial)
      AND EXISTS (SELECT FROM nodes n WHERE n.id = c.node_id)
      AND EXISTS (SELECT FROM authorities a WHERE a.id = c.authority_id)
    ORDER BY c.created_at, c.serial;
    RETURN v_block;
END $$;
REVOKE ALL ON FUNCTION identifiers_restore FROM PUBLIC;
GRANT EXECUTE ON FUNCTION identifiers_restore TO gpuaas_system;
