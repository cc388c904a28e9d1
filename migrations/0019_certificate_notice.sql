-- Operators are notified once of each node certificate that expires without being renewed.
ALTER TABLE node_contacts ADD COLUMN certificate_notified_expiry timestamptz;
COMMENT ON COLUMN node_contacts.certificate_notified_expiry IS 'expiry of the certificate that operators were notified of';
