-- Mails that invite are a channel of their own: the relay of the release before knows `mail` and `webhook` only, and would
-- give up an invitation that it cannot read.
ALTER TABLE deliveries ADD CONSTRAINT deliveries_channel_known
    CHECK (channel IN ('mail', 'invitation', 'webhook')) NOT VALID;
ALTER TABLE deliveries DROP CONSTRAINT deliveries_channel_check;

-- Mail and invitations have an address; a person is known of mail only.
ALTER TABLE deliveries ADD CONSTRAINT deliveries_address_check CHECK ((channel IN ('mail', 'invitation')) = (address IS NOT NULL)
    AND (channel = 'mail' OR person_id IS NULL)) NOT VALID;
ALTER TABLE deliveries DROP CONSTRAINT deliveries_mail_check;
