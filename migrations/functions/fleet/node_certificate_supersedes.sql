CREATE OR REPLACE FUNCTION node_certificate_supersedes() RETURNS trigger LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
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

CREATE OR REPLACE TRIGGER node_certificates_supersede BEFORE INSERT ON node_certificates
    FOR EACH ROW EXECUTE FUNCTION node_certificate_supersedes();
