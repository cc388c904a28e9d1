-- An attempt to send a refund leaves its traces by construction, whichever release makes it. Single writer: `payments`.
--
-- A replica of an earlier release raises `attempts` and knows nothing of `first_attempt_at`. A refund that it sent would count
-- as never attempted, and would be sent a second time after the provider forgot its idempotency key.
-- `leased_until`, by the clock of the database: a worker may be sending the refund, so nobody settles it by hand meanwhile.
ALTER TABLE refunds ADD COLUMN leased_until timestamptz;
COMMENT ON COLUMN refunds.leased_until IS 'until when a worker may be sending it, by the clock of the database';

CREATE FUNCTION refund_attempt_record() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.attempts > 0 AND NEW.first_attempt_at IS NULL THEN
        NEW.first_attempt_at := clock_timestamp();
    END IF;
    -- Releases that name no lease took it for 90 seconds.
    IF TG_OP = 'UPDATE' AND NEW.attempts > OLD.attempts AND NEW.leased_until IS NOT DISTINCT FROM OLD.leased_until THEN
        NEW.leased_until := clock_timestamp() + interval '90 seconds';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER refunds_attempt_record BEFORE INSERT OR UPDATE OF attempts, first_attempt_at ON refunds
    FOR EACH ROW EXECUTE FUNCTION refund_attempt_record();

-- Attempted by an earlier release since 0027, nobody knows when: at the earliest when it was asked for.
UPDATE refunds SET first_attempt_at = created_at WHERE attempts > 0 AND first_attempt_at IS NULL;
ALTER TABLE refunds ADD CONSTRAINT refunds_attempted CHECK (attempts = 0 OR first_attempt_at IS NOT NULL) NOT VALID;
ALTER TABLE refunds VALIDATE CONSTRAINT refunds_attempted;
