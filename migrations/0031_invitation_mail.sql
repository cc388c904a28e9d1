-- Invitations are mailed to addresses that belong to nobody yet, and signing up by the mailed link proves the address.

-- Since when it is proved that the address is its owner's. Accounts of before, and those that nobody proved, have none.
ALTER TABLE local_accounts ADD COLUMN email_verified_at timestamptz;

-- A mail has an address; its receiver need not be a person that we know.
ALTER TABLE deliveries ADD CONSTRAINT deliveries_mail_check CHECK ((channel = 'mail') = (address IS NOT NULL)
    AND (channel = 'mail' OR person_id IS NULL)) NOT VALID;
ALTER TABLE deliveries VALIDATE CONSTRAINT deliveries_mail_check;
ALTER TABLE deliveries DROP CONSTRAINT deliveries_check;

-- Restored from backup: tokens of other issuers that were made before this are refused when their session is not known,
-- because it may have been revoked since the backup. Nothing where nothing was ever restored.
ALTER TABLE installation ADD COLUMN sign_ins_since timestamptz;
