-- no-transaction
-- Organizations take turns in the lanes of mail: the relay jumps from organization to organization, each with its oldest due
-- message first. Messages of no organization count as one of their own.
CREATE INDEX CONCURRENTLY IF NOT EXISTS deliveries_mail_due_by_org
    ON deliveries (channel, coalesce(org_id, '00000000-0000-0000-0000-000000000000'), next_attempt_at)
    WHERE state = 'queued' AND channel IN ('mail', 'invitation');
