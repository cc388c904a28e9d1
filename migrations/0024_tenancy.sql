-- Whatever lives in a project keeps it from being deleted; policy values say who set them; wrong passwords are counted
-- by address; and a person who signs out everywhere ends their browsers too.

-- ── what lives in a project ──────────────────────────────────────────────────────────────────────────
-- The project of an allocation or meter for as long as it lives, and nothing afterwards: what has ended is history and
-- outlives its project. The foreign key makes a launch lock the project's row against deletion, and makes a deletion
-- wait for launches under way. NOT VALID: earlier versions let projects go while something lived in them, and such
-- rows must still be released.
ALTER TABLE allocations ADD COLUMN live_project_id uuid
    GENERATED ALWAYS AS (CASE WHEN state NOT IN ('released', 'failed') THEN project_id END) STORED;
ALTER TABLE allocations ADD CONSTRAINT allocations_live_project FOREIGN KEY (org_id, live_project_id)
    REFERENCES projects (org_id, id) ON DELETE RESTRICT NOT VALID;
ALTER TABLE meters ADD COLUMN live_project_id uuid
    GENERATED ALWAYS AS (CASE WHEN state IN ('held', 'open', 'paused') THEN project_id END) STORED;
ALTER TABLE meters ADD CONSTRAINT meters_live_project FOREIGN KEY (org_id, live_project_id)
    REFERENCES projects (org_id, id) ON DELETE RESTRICT NOT VALID;
ALTER TABLE budgets ADD CONSTRAINT budgets_project FOREIGN KEY (org_id, project_id)
    REFERENCES projects (org_id, id) ON DELETE RESTRICT NOT VALID;

-- Everything that a deletion of the project would be refused for. A table that gets such a foreign key belongs here.
CREATE VIEW project_residents WITH (security_invoker = true) AS
    SELECT org_id, live_project_id AS project_id, 'allocation' AS kind, id, name, state
        FROM allocations WHERE live_project_id IS NOT NULL
    UNION ALL
    SELECT org_id, project_id, 'service_account', id, name, state FROM service_accounts
    UNION ALL
    SELECT org_id, project_id, 'budget', project_id, 'budget', action FROM budgets
    UNION ALL
    -- A meter runs with its allocation, which is named above; one that runs alone is named by itself.
    SELECT m.org_id, m.live_project_id, 'meter', m.id, m.sku, m.state FROM meters m
        WHERE m.live_project_id IS NOT NULL
            AND NOT EXISTS (SELECT FROM allocations a WHERE a.id = m.allocation_id AND a.live_project_id IS NOT NULL);
COMMENT ON VIEW project_residents IS 'what keeps a project from being deleted';
GRANT SELECT ON project_residents TO gpuaas_app, gpuaas_system;

-- Organizations are suspended, never deleted: their ledger, audit trail and projects name them.
CREATE FUNCTION refuse_organization_delete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'organizations are suspended, never deleted' USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER organizations_no_delete BEFORE DELETE ON organizations
    FOR EACH ROW EXECUTE FUNCTION refuse_organization_delete();

-- ── policies ─────────────────────────────────────────────────────────────────────────────────────────
-- On whose authority a value stands, and whether it is only a default for those below. Values of earlier versions do
-- not say: keys that tenants cannot set were set by the platform, others by whoever the place belongs to.
ALTER TABLE policy_values ADD COLUMN set_by text NOT NULL DEFAULT 'platform';
ALTER TABLE policy_values ADD COLUMN is_default boolean NOT NULL DEFAULT false;
UPDATE policy_values SET set_by = CASE WHEN scope = 'project' AND key NOT LIKE 'quota.%' THEN 'project' ELSE 'org' END
    WHERE scope <> 'global' AND NOT (scope = 'org' AND key LIKE 'quota.%')
        AND key IN ('allocation.isolation_model', 'allocation.max_concurrent_per_user', 'notification.balance_depleted_enabled',
            'notification.low_balance_enabled', 'quota.gpus_per_project', 'terminal.recording', 'terminal.session_max_ttl_seconds');
ALTER TABLE policy_values ADD CONSTRAINT policy_values_set_by CHECK (set_by IN ('platform', 'org', 'project')) NOT VALID;

-- ── wrong passwords ──────────────────────────────────────────────────────────────────────────────────
-- Each guess moves `spent_until` forward, and is refused while that is too far ahead. A row whose time has passed says
-- nothing and is removed.
CREATE TABLE issuer_guesses (
    -- An address (of IPv6 the network), or a browser that is signed in.
    source      text        NOT NULL,
    -- None: everything that comes from the address.
    account_id  uuid REFERENCES local_accounts ON DELETE CASCADE,
    spent_until timestamptz NOT NULL,
    UNIQUE NULLS NOT DISTINCT (source, account_id)
);
CREATE INDEX issuer_guesses_by_time ON issuer_guesses (spent_until);
CREATE INDEX issuer_guesses_by_account ON issuer_guesses (account_id);
COMMENT ON TABLE issuer_guesses IS 'platform: how many passwords were guessed from an address, in all and at one account';
GRANT SELECT, INSERT, UPDATE, DELETE ON issuer_guesses TO gpuaas_system;

-- Whether a session was ended by itself (somebody signed out) and not by another one (somebody was shut out). Where an
-- issuer does not say which sign-in a token belongs to, only the former can sign in again at once.
ALTER TABLE account_sessions ADD COLUMN ended_by_itself boolean NOT NULL DEFAULT false;

-- ── signing out everywhere ───────────────────────────────────────────────────────────────────────────
-- Ends what a person has signed in at the built-in issuer, except what the session `p_keep` was made from: browsers,
-- codes that were not redeemed, devices that were approved and have not come for their tokens. Only for oneself.
CREATE FUNCTION issuer_browsers_end(p_issuer text, p_keep uuid) RETURNS void
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
