-- Webhook messages are taken fairly between organizations, and the queue of each is bounded.

-- Jumps from webhook to webhook, each with its oldest due message first.
CREATE INDEX deliveries_due_by_webhook ON deliveries (webhook_id, next_attempt_at)
    WHERE state = 'queued' AND channel = 'webhook';

-- Events that a webhook did not get because its organization's queue was full.
ALTER TABLE webhooks ADD COLUMN dropped_events bigint NOT NULL DEFAULT 0 CHECK (dropped_events >= 0);
ALTER TABLE webhooks ADD COLUMN last_dropped_at timestamptz;
ALTER TABLE webhooks ADD CONSTRAINT webhooks_dropped_check CHECK ((dropped_events = 0) = (last_dropped_at IS NULL));
