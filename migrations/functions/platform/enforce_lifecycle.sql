-- Refuses a state change that the table of the lifecycle (the trigger's argument) does not hold.
CREATE OR REPLACE FUNCTION enforce_lifecycle() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    IF NEW.state IS DISTINCT FROM OLD.state AND NOT EXISTS (
        SELECT FROM lifecycle_transitions
        WHERE lifecycle = TG_ARGV[0] AND from_state = OLD.state AND to_state = NEW.state
    ) THEN
        RAISE EXCEPTION '% cannot go from % to %', TG_ARGV[0], OLD.state, NEW.state USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE TRIGGER invitations_lifecycle BEFORE UPDATE OF state ON invitations
    FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('invitation');
CREATE OR REPLACE TRIGGER dead_letters_lifecycle BEFORE UPDATE OF state ON dead_letters
    FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('dead_letter');
CREATE OR REPLACE TRIGGER nodes_lifecycle BEFORE UPDATE OF state ON nodes
    FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('node');
CREATE OR REPLACE TRIGGER node_onboardings_lifecycle BEFORE UPDATE OF state ON node_onboardings
    FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('node_onboarding');
CREATE OR REPLACE TRIGGER node_resource_slots_lifecycle BEFORE UPDATE OF state ON node_resource_slots
    FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('slot');
CREATE OR REPLACE TRIGGER node_tasks_lifecycle BEFORE UPDATE OF state ON node_tasks
    FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('task');
CREATE OR REPLACE TRIGGER health_findings_lifecycle BEFORE UPDATE OF state ON health_findings
    FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('health_finding');
CREATE OR REPLACE TRIGGER authorities_lifecycle BEFORE UPDATE OF state ON authorities
    FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('authority');
CREATE OR REPLACE TRIGGER signer_keys_lifecycle BEFORE UPDATE OF state ON signer_keys
    FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('signer');
CREATE OR REPLACE TRIGGER saga_runs_lifecycle BEFORE UPDATE OF state ON saga_runs
    FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('saga_run');
CREATE OR REPLACE TRIGGER allocations_lifecycle BEFORE UPDATE OF state ON allocations
    FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('allocation');
CREATE OR REPLACE TRIGGER billing_accounts_lifecycle BEFORE UPDATE OF state ON billing_accounts
    FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('balance');
CREATE OR REPLACE TRIGGER meters_lifecycle BEFORE UPDATE OF state ON meters FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('meter');
CREATE OR REPLACE TRIGGER ledger_adjustments_lifecycle BEFORE UPDATE OF state ON ledger_adjustments
    FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('ledger_adjustment');
CREATE OR REPLACE TRIGGER topups_lifecycle BEFORE UPDATE OF state ON topups FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('topup');
CREATE OR REPLACE TRIGGER refunds_lifecycle BEFORE UPDATE OF state ON refunds FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('refund');
CREATE OR REPLACE TRIGGER disputes_lifecycle BEFORE UPDATE OF state ON disputes FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('dispute');
CREATE OR REPLACE TRIGGER payment_messages_lifecycle BEFORE UPDATE OF state ON payment_messages
    FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('payment_message');
CREATE OR REPLACE TRIGGER payment_days_lifecycle BEFORE UPDATE OF state ON payment_days
    FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('payment_day');
CREATE OR REPLACE TRIGGER webhooks_lifecycle BEFORE UPDATE OF state ON webhooks FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('webhook');
CREATE OR REPLACE TRIGGER deliveries_lifecycle BEFORE UPDATE OF state ON deliveries FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('delivery');
CREATE OR REPLACE TRIGGER sensitive_changes_lifecycle BEFORE UPDATE OF state ON sensitive_changes
    FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('sensitive_change');
