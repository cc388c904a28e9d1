-- What was signed never changes.
CREATE OR REPLACE FUNCTION refuse_change_of_signed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'signed work cannot be changed' USING ERRCODE = 'check_violation';
END $$;

CREATE OR REPLACE TRIGGER node_tasks_signed BEFORE UPDATE OF node_id, task_type, payload, signature, signer_version, issued_at,
    expires_at ON node_tasks FOR EACH ROW EXECUTE FUNCTION refuse_change_of_signed();
