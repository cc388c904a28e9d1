-- Restored from backup: which state of the installation this database holds, and what may happen in it.
--
-- Every process counts `generation` up when it starts and every few seconds, commits, and then writes the number to a
-- file outside the database. A file that is ahead of the database was written after the state that the database holds:
-- the database was restored. Until an operator has settled what differs from the nodes, `mode` is `restore`.

CREATE TABLE installation (
    is_only           boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    id                uuid        NOT NULL DEFAULT gen_random_uuid(),
    generation        bigint      NOT NULL DEFAULT 0 CHECK (generation >= 0),
    generation_at     timestamptz NOT NULL DEFAULT now(),
    mode              text        NOT NULL DEFAULT 'normal' CHECK (mode IN ('normal', 'restore')),
    -- When it was noticed, why, and of when the restored state is.
    restored_at       timestamptz,
    restored_because  text,
    restored_state_at timestamptz,
    -- When the last turn began that compared all records with all nodes, each of which had reported since.
    compared_at       timestamptz,
    CHECK (compared_at IS NULL OR mode = 'restore'),
    CHECK ((mode = 'restore') = (restored_at IS NOT NULL)),
    CHECK ((restored_at IS NULL) = (restored_because IS NULL)),
    CHECK ((restored_at IS NULL) = (restored_state_at IS NULL))
);
COMMENT ON TABLE installation IS 'platform: one row; which state of the installation this is, and whether it was restored';
GRANT SELECT, UPDATE ON installation TO gpuaas_system;
INSERT INTO installation DEFAULT VALUES;

-- What an operator decided about a difference between the restored records and a node.
CREATE TABLE restore_decisions (
    discrepancy_id uuid PRIMARY KEY REFERENCES capacity_discrepancies,
    decision       text        NOT NULL CHECK (decision IN ('keep', 'cordon', 'end')),
    note           text        NOT NULL,
    decided_by     uuid,
    decided_at     timestamptz NOT NULL
);
COMMENT ON TABLE restore_decisions IS 'platform: what operators decided about differences after a restore; emptied by the next one';
GRANT SELECT, INSERT, UPDATE, DELETE ON restore_decisions TO gpuaas_system;

-- Whoever would place, release, charge or have nodes work is refused here, also a process that has not noticed.
CREATE FUNCTION refuse_while_restoring() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM installation WHERE mode = 'restore') THEN
        RAISE EXCEPTION 'the database was restored from a backup: % of % waits until an operator has resumed', TG_OP, TG_TABLE_NAME
            USING ERRCODE = 'GR001';
    END IF;
    RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION refuse_while_restoring FROM PUBLIC;
CREATE TRIGGER allocations_restoring BEFORE INSERT ON allocations
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_while_restoring();
CREATE TRIGGER capacity_claims_restoring BEFORE INSERT OR DELETE ON capacity_claims
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_while_restoring();
CREATE TRIGGER saga_runs_restoring BEFORE INSERT ON saga_runs
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_while_restoring();
CREATE TRIGGER node_tasks_restoring BEFORE INSERT ON node_tasks
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_while_restoring();
CREATE TRIGGER meters_restoring BEFORE INSERT OR UPDATE ON meters
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_while_restoring();
CREATE TRIGGER ledger_postings_restoring BEFORE INSERT ON ledger_postings
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_while_restoring();

-- Identifiers that must never come back, as the file outside the database remembers them: the last block of unix ids, and
-- the certificates of nodes that have not expired.
CREATE FUNCTION identifiers_snapshot() RETURNS jsonb
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT jsonb_build_object(
        'uid_block', (SELECT last_value FROM allocation_uids),
        'certificates', (SELECT coalesce(jsonb_agg(to_jsonb(c) - 'chain_pem' ORDER BY c.serial), '[]')
            FROM node_certificates c WHERE c.not_after > now()))
$$;

-- Continues after a restore above whatever may have been given since the backup: unix ids go on after those that the
-- outside remembers, and a margin for those that it does not. A certificate that was revoked since stays revoked, and
-- one that was given since is known. Answers the block of unix ids after which the next one comes.
CREATE FUNCTION identifiers_restore(p_remembered jsonb) RETURNS bigint
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
REVOKE ALL ON FUNCTION identifiers_snapshot, identifiers_restore FROM PUBLIC;
GRANT EXECUTE ON FUNCTION identifiers_snapshot, identifiers_restore TO gpuaas_system;
