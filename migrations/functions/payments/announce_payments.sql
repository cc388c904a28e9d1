-- Wakes the worker, and whoever waits for this very thing.
CREATE OR REPLACE FUNCTION announce_payments() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('gpuaas_webhooks', NEW.id::text);
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER topups_announce_new AFTER INSERT ON topups FOR EACH ROW EXECUTE FUNCTION announce_payments();
CREATE OR REPLACE TRIGGER topups_announce_change AFTER UPDATE OF state, cancel_requested_at ON topups
    FOR EACH ROW EXECUTE FUNCTION announce_payments();
CREATE OR REPLACE TRIGGER refunds_announce_new AFTER INSERT ON refunds FOR EACH ROW EXECUTE FUNCTION announce_payments();
CREATE OR REPLACE TRIGGER payment_days_announce AFTER INSERT OR UPDATE OF requested_at ON payment_days
    FOR EACH ROW EXECUTE FUNCTION announce_payments();
