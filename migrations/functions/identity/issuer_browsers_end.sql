-- Ends what a person has signed in at the built-in issuer, except what the session `p_keep` was made from: browsers,
-- codes that were not redeemed, devices that were approved and have not come for their tokens. Only for oneself.
CREATE OR REPLACE FUNCTION issuer_browsers_end(p_issuer text, p_keep uuid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_account uuid;
    v_browser bytea[];
BEGIN
    SELECT a.id INTO v_account FROM users u JOIN local_accounts a ON a.id = substring(u.subject FROM '^acct_([0-9a-f]{32})$')::uuid
        WHERE u.id = current_principal() AND u.issuer = p_issuer FOR NO KEY UPDATE OF a;
    v_browser := ARRAY (SELECT DISTINCT r.browser_hash FROM issuer_refresh_tokens r
        WHERE r.session_id = p_keep AND r.account_id = v_account AND r.browser_hash IS NOT NULL);
    DELETE FROM issuer_browser_sessions WHERE account_id = v_account AND token_hash <> ALL (v_browser);
    DELETE FROM issuer_codes WHERE account_id = v_account AND used_at IS NULL AND browser_hash <> ALL (v_browser);
    DELETE FROM issuer_device_codes WHERE account_id = v_account AND used_at IS NULL
        AND (browser_hash IS NULL OR browser_hash <> ALL (v_browser));
END $$;
REVOKE ALL ON FUNCTION issuer_browsers_end FROM PUBLIC;
GRANT EXECUTE ON FUNCTION issuer_browsers_end TO gpuaas_app, gpuaas_system;
