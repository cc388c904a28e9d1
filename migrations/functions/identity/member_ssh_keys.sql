-- The public keys of those of `p_users` who can enter the project: people who belong to it, and its own service accounts.
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
    UNION ALL
    SELECT s.id, k.public_key
    FROM service_accounts s, unnest(s.ssh_public_keys) AS k (public_key)
    WHERE s.project_id = p_project AND s.id = ANY (p_users) AND s.disabled_at IS NULL
        AND (NOT called_by_app() OR s.org_id = current_org())
    ORDER BY 1, 2
$$;
REVOKE ALL ON FUNCTION member_ssh_keys FROM PUBLIC;
GRANT EXECUTE ON FUNCTION member_ssh_keys TO gpuaas_app, gpuaas_system;
