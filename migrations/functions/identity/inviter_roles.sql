-- The roles that whoever sent an invitation has now, in its organization, in its project, and on the platform. Requests of
-- organizations cannot read who has a role on the platform.
CREATE OR REPLACE FUNCTION inviter_roles(p_invitation uuid) RETURNS TABLE (place text, role text)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    WITH sent AS (
        SELECT i.org_id, i.project_id, i.invited_by FROM invitations i
        WHERE i.id = p_invitation AND (NOT called_by_app() OR i.org_id = current_org()))
    SELECT 'org', m.role FROM sent JOIN tenant_memberships m ON m.org_id = sent.org_id AND m.user_id = sent.invited_by
    UNION ALL
    SELECT 'project', m.role FROM sent JOIN project_memberships m ON m.project_id = sent.project_id AND m.user_id = sent.invited_by
    UNION ALL
    SELECT 'platform', b.role FROM sent JOIN platform_bindings b ON b.user_id = sent.invited_by
$$;
REVOKE ALL ON FUNCTION inviter_roles FROM PUBLIC;
GRANT EXECUTE ON FUNCTION inviter_roles TO gpuaas_app, gpuaas_system;
