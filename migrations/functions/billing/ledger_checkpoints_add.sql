-- Keeps what was signed for a day; an element for each chain. Chains that are in use, or that somebody else signed
-- meanwhile, are left for the next time. Answers how many were kept.
CREATE OR REPLACE FUNCTION ledger_checkpoints_add(
    p_day date, p_signed_at timestamptz, p_key_id text, p_public_key bytea, p_chains checkpoint_batch
) RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    WITH locked AS MATERIALIZED (
        SELECT c.org_id, c.checkpoint_seq FROM ledger_chains c WHERE c.org_id = ANY (p_chains.orgs)
        ORDER BY c.org_id FOR UPDATE SKIP LOCKED
    ), added AS (
        INSERT INTO ledger_checkpoints (org_id, day, prev_seq, seq, hash, signed_at, key_id, public_key, signature)
            SELECT g.org_id, p_day, g.prev, g.seq, g.hash, p_signed_at, p_key_id, p_public_key, g.signature
            FROM unnest(p_chains.orgs, p_chains.prevs, p_chains.seqs, p_chains.hashes, p_chains.signatures)
                AS g (org_id, prev, seq, hash, signature)
            JOIN locked l ON l.org_id = g.org_id AND l.checkpoint_seq = g.prev
        ON CONFLICT DO NOTHING RETURNING org_id, seq
    ), moved AS (
        UPDATE ledger_chains c SET checkpoint_seq = a.seq FROM added a WHERE c.org_id = a.org_id RETURNING c.org_id
    )
    SELECT count(*) FROM moved
$$;
REVOKE ALL ON FUNCTION ledger_checkpoints_add(date, timestamptz, text, bytea, checkpoint_batch) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION ledger_checkpoints_add(date, timestamptz, text, bytea, checkpoint_batch) TO gpuaas_system;

-- For the release before, which calls it; drop it with the next.
CREATE OR REPLACE FUNCTION ledger_checkpoints_add(
    p_day date, p_signed_at timestamptz, p_key_id text, p_public_key bytea,
    c_orgs uuid[], c_prevs bigint[], c_seqs bigint[], c_hashes bytea[], c_signatures bytea[]
) RETURNS bigint
LANGUAGE sql AS $$
    SELECT ledger_checkpoints_add(p_day, p_signed_at, p_key_id, p_public_key,
        ROW(c_orgs, c_prevs, c_seqs, c_hashes, c_signatures)::checkpoint_batch)
$$;
