-- no-transaction
-- Webhook messages are taken fairly: jumps from webhook to webhook, each with its oldest due message first.
CREATE INDEX CONCURRENTLY IF NOT EXISTS deliveries_due_by_webhook ON deliveries (webhook_id, next_attempt_at)
    WHERE state = 'queued' AND channel = 'webhook';
