-- Which keys a machine has, or is about to get: so that whatever takes a key from somebody is found by comparing, however
-- it happened.
CREATE TABLE allocation_keys (
    allocation_id   uuid   NOT NULL REFERENCES allocations DEFERRABLE INITIALLY DEFERRED,
    public_key      text   NOT NULL,
    org_id          uuid   NOT NULL,
    -- The version of the key set with which a request ordered it last.
    ordered_version bigint NOT NULL,
    -- The version of the key set that has it no more; the row goes when the machine has confirmed that.
    removed_version bigint,
    removed_at      timestamptz,
    PRIMARY KEY (allocation_id, public_key),
    CHECK ((removed_version IS NULL) = (removed_at IS NULL))
);
COMMENT ON TABLE allocation_keys IS 'tenant: the SSH keys that the machine of an allocation has or is to get, and those that it must give up';
CREATE INDEX allocation_keys_removed ON allocation_keys (org_id, removed_at) WHERE removed_version IS NOT NULL;
ALTER TABLE allocation_keys ENABLE ROW LEVEL SECURITY;
CREATE POLICY allocation_keys_tenant ON allocation_keys TO gpuaas_app USING (org_id = (SELECT current_org()));
CREATE POLICY allocation_keys_system ON allocation_keys TO gpuaas_system USING (true);
GRANT SELECT, INSERT, UPDATE ON allocation_keys TO gpuaas_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON allocation_keys TO gpuaas_system;

-- Whoever's account is disabled has no keys, as whoever left the project.
CREATE OR REPLACE FUNCTION member_ssh_keys(p_project uuid, p_users uuid[]) RETURNS TABLE (user_id uuid, public_key text)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT k.user_id, k.public_key
    FROM projects p
        JOIN tenant_memberships t ON t.org_id = p.org_id AND t.user_id = ANY (p_users)
        JOIN users u ON u.id = t.user_id
        JOIN user_ssh_keys k ON k.user_id = t.user_id
    WHERE p.id = p_project AND (NOT called_by_app() OR p.org_id = current_org())
        AND (t.role <> 'member'
            OR EXISTS (SELECT FROM project_memberships m WHERE m.project_id = p.id AND m.user_id = t.user_id))
        AND NOT EXISTS (SELECT FROM local_accounts l WHERE l.disabled_at IS NOT NULL
            AND u.subject = 'acct_' || replace(l.id::text, '-', ''))
    ORDER BY k.user_id, k.id
$$;

-- Machines from before: the keys of their people are recorded, and one row that is nobody's key makes each of them give up
-- what it has besides.
INSERT INTO allocation_keys (allocation_id, public_key, org_id, ordered_version)
SELECT a.id, k.public_key, a.org_id, 1
FROM allocations a
    CROSS JOIN LATERAL (
        SELECT DISTINCT m.public_key FROM member_ssh_keys(a.project_id, ARRAY(
            SELECT a.creator_id UNION ALL
            SELECT g.user_id FROM allocation_access_grants g WHERE g.allocation_id = a.id)) m
        UNION ALL SELECT '') k
WHERE a.state IN ('requested', 'provisioning', 'active');

-- What is released while it is being launched ends as what it is: released.
INSERT INTO lifecycle_transitions VALUES
    ('allocation', 'requested', 'released'), ('allocation', 'provisioning', 'released');
