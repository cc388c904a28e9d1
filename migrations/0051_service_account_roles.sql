-- What a service account may do in its project, and the keys of the machines that it launches. Accounts from before have no
-- role and keep what they had.
ALTER TABLE service_accounts ADD COLUMN role text, ADD COLUMN ssh_public_keys text[] NOT NULL DEFAULT '{}';
ALTER TABLE service_accounts ADD CONSTRAINT service_accounts_role_known CHECK (role IN ('reader', 'launcher')) NOT VALID;
ALTER TABLE service_accounts VALIDATE CONSTRAINT service_accounts_role_known;
