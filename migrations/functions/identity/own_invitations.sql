-- The open invitations of the caller's own address, which must be proved: an issuer elsewhere vouched for it, or a mailed
-- link was opened. Row-level security shows invitations to their organization only, which the caller has not joined yet.
CREATE OR REPLACE FUNCTION own_invitations(p_now timestamptz) RETURNS TABLE (
        id uuid, org_id uuid, org_name text, email text, role text, project_id uuid, project_name text, project_role text,
        invited_by text, invited_by_email text, expires_at timestamptz, created_at timestamptz)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT i.id, i.org_id, o.name, i.email, i.role, i.project_id, p.name, i.project_role, coalesce(b.name, ''), b.email,
        i.expires_at, i.created_at
    FROM users u
        JOIN invitations i ON lower(i.email) = lower(u.email) AND i.state = 'pending' AND i.expires_at > p_now
        JOIN organizations o ON o.id = i.org_id AND o.suspended_at IS NULL
        LEFT JOIN projects p ON p.id = i.project_id
        LEFT JOIN users b ON b.id = i.invited_by
    WHERE u.id = current_principal()
        AND NOT EXISTS (SELECT FROM local_accounts l WHERE l.email_verified_at IS NULL
            AND l.id = CASE WHEN u.subject ~ '^acct_[0-9a-f]{32}$' THEN substr(u.subject, 6)::uuid END)
$$;
REVOKE ALL ON FUNCTION own_invitations FROM PUBLIC;
GRANT EXECUTE ON FUNCTION own_invitations TO gpuaas_app, gpuaas_system;
