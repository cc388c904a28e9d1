CREATE OR REPLACE FUNCTION refund_attempt_record() RETURNS trigger LANGUAGE plpgsql AS $$
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

CREATE OR REPLACE TRIGGER refunds_attempt_record BEFORE INSERT OR UPDATE OF attempts, first_attempt_at ON refunds
    FOR EACH ROW EXECUTE FUNCTION refund_attempt_record();
