-- Everything that a deletion of the project would be refused for. A table that gets such a foreign key belongs here.
CREATE OR REPLACE VIEW project_residents WITH (security_invoker = true) AS
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
GRANT SELECT ON project_residents TO gpuaas_app, gpuaas_system;
