-- Which machines can be installed anew; and one live certificate for each node.

-- ── who can be installed anew ────────────────────────────────────────────────────────────────────────
-- Those of the nodes that are made of software. Requests may ask: it says nothing that the catalog hides.
CREATE FUNCTION fleet_simulated(p_nodes uuid[]) RETURNS SETOF uuid
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT n.id FROM nodes n WHERE n.id = ANY (p_nodes) AND n.simulated
$$;
REVOKE ALL ON FUNCTION fleet_simulated FROM PUBLIC;
GRANT EXECUTE ON FUNCTION fleet_simulated TO gpuaas_app, gpuaas_system;

-- ── one live certificate for each node ───────────────────────────────────────────────────────────────
-- A certificate is superseded by the next one in the transaction that keeps it. Until the next one was used for the
-- first time, the one that it was renewed from may ask for it once more, and for nothing else.
ALTER TABLE node_certificates
    -- Of the public key. Absent for certificates of earlier versions.
    ADD COLUMN key_sha256    bytea,
    ADD COLUMN chain_pem     text,
    -- The certificate that was shown for it; absent when it was given for a token.
    ADD COLUMN renewed_from  text,
    ADD COLUMN first_used_at timestamptz,
    -- Revoked because a later one took its place. Whoever shows it after that has a copy.
    ADD COLUMN superseded    boolean NOT NULL DEFAULT false;
ALTER TABLE node_certificates
    ADD CONSTRAINT node_certificates_key_length CHECK (length(key_sha256) = 32) NOT VALID,
    ADD CONSTRAINT node_certificates_superseded CHECK (NOT superseded OR revoked_at IS NOT NULL) NOT VALID;
ALTER TABLE node_certificates VALIDATE CONSTRAINT node_certificates_key_length;
ALTER TABLE node_certificates VALIDATE CONSTRAINT node_certificates_superseded;
UPDATE node_certificates SET first_used_at = created_at;
UPDATE node_certificates c SET revoked_at = now(), reason = 'superseded by a later certificate', superseded = true
    WHERE c.revoked_at IS NULL AND EXISTS (SELECT FROM node_certificates later
        WHERE later.node_id = c.node_id AND later.revoked_at IS NULL
            AND (later.not_after, later.serial) > (c.not_after, c.serial));

CREATE FUNCTION node_certificate_supersedes() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
BEGIN
    -- By a build from before this migration, which renews and does not say so.
    IF NEW.key_sha256 IS NULL AND NEW.renewed_from IS NULL THEN
        SELECT serial INTO NEW.renewed_from FROM node_certificates
            WHERE node_id = NEW.node_id AND revoked_at IS NULL LIMIT 1;
    END IF;
    UPDATE node_certificates SET revoked_at = NEW.created_at, reason = 'superseded by a later certificate',
        superseded = true
        WHERE node_id = NEW.node_id AND revoked_at IS NULL;
    RETURN NEW;
END $$;
REVOKE ALL ON FUNCTION node_certificate_supersedes FROM PUBLIC;
CREATE TRIGGER node_certificates_supersede BEFORE INSERT ON node_certificates
    FOR EACH ROW EXECUTE FUNCTION node_certificate_supersedes();

-- ── a new key after each tenancy ─────────────────────────────────────────────────────────────────────
ALTER TABLE nodes ADD COLUMN rekey_since timestamptz;
COMMENT ON COLUMN nodes.rekey_since IS 'certificates from before this are to be renewed with a new key at once';
