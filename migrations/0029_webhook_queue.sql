-- The queue of webhook messages of each organization is bounded: events that a webhook did not get because it was full.
ALTER TABLE webhooks ADD COLUMN dropped_events bigint NOT NULL DEFAULT 0;
ALTER TABLE webhooks ADD COLUMN last_dropped_at timestamptz;
ALTER TABLE webhooks ADD CONSTRAINT webhooks_dropped_check CHECK (dropped_events >= 0
    AND (dropped_events = 0) = (last_dropped_at IS NULL)) NOT VALID;
ALTER TABLE webhooks VALIDATE CONSTRAINT webhooks_dropped_check;
