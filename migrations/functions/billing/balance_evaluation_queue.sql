-- A meter of the organization changed in this transaction: the billing worker evaluates balance and budgets when it has
-- committed. Called by the functions that change meters.
CREATE OR REPLACE FUNCTION balance_evaluation_queue(p_org uuid) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO balance_evaluations (org_id) VALUES (p_org);
    PERFORM pg_notify('gpuaas_balances', '');
END $$;
REVOKE ALL ON FUNCTION balance_evaluation_queue FROM PUBLIC;
