-- An invitation may also give a role in a project. When the project is deleted, the role without a project says that
-- there was one.
ALTER TABLE invitations ADD COLUMN project_id uuid, ADD COLUMN project_role text, ADD COLUMN declined_by uuid;
ALTER TABLE invitations ADD CONSTRAINT invitations_project_role_known CHECK (
    project_role IN ('owner', 'admin', 'member', 'viewer') AND (project_id IS NULL OR project_role IS NOT NULL)) NOT VALID;
ALTER TABLE invitations ADD CONSTRAINT invitations_declined_check CHECK (declined_by IS NULL OR state = 'revoked') NOT VALID;
ALTER TABLE invitations ADD CONSTRAINT invitations_project_fkey FOREIGN KEY (org_id, project_id)
    REFERENCES projects (org_id, id) ON DELETE SET NULL (project_id) NOT VALID;
ALTER TABLE invitations VALIDATE CONSTRAINT invitations_project_role_known;
ALTER TABLE invitations VALIDATE CONSTRAINT invitations_declined_check;
ALTER TABLE invitations VALIDATE CONSTRAINT invitations_project_fkey;
