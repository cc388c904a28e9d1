-- Organizations are suspended, never deleted: their ledger, audit trail and projects name them.
CREATE OR REPLACE FUNCTION refuse_organization_delete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'organizations are suspended, never deleted' USING ERRCODE = 'restrict_violation';
END $$;

CREATE OR REPLACE TRIGGER organizations_no_delete BEFORE DELETE ON organizations
    FOR EACH ROW EXECUTE FUNCTION refuse_organization_delete();
