-- Makes allocations with their claims, all or none, in one round trip. Answers `ok`, `slot_taken` when a slot is no
-- longer free, or which limit is exceeded. A name that another live allocation of the project has violates
-- `allocations_live_name`. Order of locks: slots, names, node modes, holdings; the audit chain comes last.
CREATE OR REPLACE FUNCTION capacity_reserve(
    p_now timestamptz, p_launch launch_terms, p_limits reserve_limits, p_allocations allocation_batch, p_claims claim_batch,
    p_origin write_origin
) RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_exclusive boolean := p_launch.shape = 'baremetal';
    v_count     bigint := cardinality(p_allocations.ids);
    v_gpus      bigint := p_launch.gpus * v_count;
    v_over      text;
BEGIN
    IF called_by_app() AND p_launch.org_id IS DISTINCT FROM current_org() THEN
        RAISE EXCEPTION 'capacity is reserved for one''s own organization only' USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF fleet_slots_reserve(p_claims.slots, p_now) <> cardinality(p_claims.slots) THEN
        RETURN 'slot_taken';
    END IF;
    IF p_launch.group_id IS NOT NULL THEN
        INSERT INTO allocation_groups (id, org_id, project_id, name, members, created_by, created_at)
            VALUES (p_launch.group_id, p_launch.org_id, p_launch.project_id, p_launch.group_name, v_count,
                p_launch.creator_id, p_now);
    END IF;
    INSERT INTO allocations (id, org_id, project_id, group_id, name, creator_kind, creator_id, sku, shape, region,
        gpus, profile, price_unit, unit_price_minor, currency, isolation_model, node_id, slot_ids, username, uid,
        ssh_host, ssh_port, work_order, state_changed_at, created_at, updated_at, unique_name)
    SELECT a.id, p_launch.org_id, p_launch.project_id, p_launch.group_id, a.name, p_launch.creator_kind,
        p_launch.creator_id, p_launch.sku, p_launch.shape, p_launch.region, p_launch.gpus, p_launch.profile,
        p_launch.price_unit, p_launch.unit_price_minor, p_launch.currency, p_launch.isolation_model, a.node,
        ARRAY (SELECT s.slot FROM unnest(p_claims.allocations, p_claims.slots) AS s (allocation, slot)
            WHERE s.allocation = a.id),
        a.username, a.uid, a.host, a.port, a.work_order, p_now, p_now, p_now, true
    FROM unnest(p_allocations.ids, p_allocations.names, p_allocations.nodes, p_allocations.usernames,
        p_allocations.uids, p_allocations.ssh_hosts, p_allocations.ssh_ports, p_allocations.work_orders)
        AS a (id, name, node, username, uid, host, port, work_order);
    INSERT INTO capacity_node_modes (node_id, exclusive)
        SELECT DISTINCT n, v_exclusive FROM unnest(p_allocations.nodes) AS n ORDER BY n
        ON CONFLICT (node_id) DO UPDATE SET exclusive = excluded.exclusive
            WHERE capacity_node_modes.exclusive <> excluded.exclusive;
    INSERT INTO capacity_claims (allocation_id, node_id, slot_id, exclusive, claimed_at)
    SELECT s.allocation, s.node, s.slot, v_exclusive, p_now
        FROM unnest(p_claims.allocations, p_claims.nodes, p_claims.slots) AS s (allocation, node, slot)
    UNION ALL
    SELECT a.id, a.node, NULL, true, p_now FROM unnest(p_allocations.ids, p_allocations.nodes) AS a (id, node)
        WHERE v_exclusive;
    INSERT INTO allocation_events (allocation_id, org_id, at, kind, to_state, name, actor_kind, actor_id, correlation_id)
    SELECT id, p_launch.org_id, p_now, 'state', 'requested', 'request', p_origin.actor_kind, p_origin.actor_id,
            p_origin.correlation_id
        FROM unnest(p_allocations.ids) AS id;
    WITH held AS (
        INSERT INTO capacity_holdings AS h (org_id, kind, holder, gpus, allocations)
        VALUES (p_launch.org_id, '1_org', p_launch.org_id, v_gpus, v_count),
            (p_launch.org_id, '2_project', p_launch.project_id, v_gpus, v_count),
            (p_launch.org_id, '3_person', p_launch.creator_id, v_gpus, v_count)
        ON CONFLICT (org_id, kind, holder)
            DO UPDATE SET gpus = h.gpus + excluded.gpus, allocations = h.allocations + excluded.allocations
        RETURNING kind, gpus, allocations
    )
    SELECT CASE WHEN bool_or(kind = '3_person' AND allocations > p_limits.person_allocations) THEN 'person'
                WHEN bool_or(kind = '2_project' AND gpus > p_limits.project_gpus) THEN 'project'
                WHEN bool_or(kind = '1_org' AND gpus > p_limits.org_gpus) THEN 'org' END
        INTO v_over FROM held;
    RETURN coalesce(v_over, 'ok');
END $$;
REVOKE ALL ON FUNCTION capacity_reserve(timestamptz, launch_terms, reserve_limits, allocation_batch, claim_batch, write_origin) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION capacity_reserve(timestamptz, launch_terms, reserve_limits, allocation_batch, claim_batch, write_origin) TO gpuaas_app, gpuaas_system;

-- For the release before, which calls it and gives many allocations one name: all but the first get the tail of their id.
-- Drop it with the next.
CREATE OR REPLACE FUNCTION capacity_reserve(
    p_now timestamptz, p_org uuid, p_project uuid, p_creator_kind text, p_creator uuid,
    p_group uuid, p_group_name text,
    p_sku text, p_shape text, p_region text, p_gpus integer, p_profile jsonb, p_price_unit text,
    p_unit_price bigint, p_currency text, p_isolation text,
    p_limit_org bigint, p_limit_project bigint, p_limit_person bigint,
    -- One of each per allocation.
    a_ids uuid[], a_names text[], a_nodes uuid[], a_usernames text[], a_uids integer[], a_hosts text[],
    a_ports integer[], a_orders bytea[],
    -- One of each per slot.
    s_allocations uuid[], s_nodes uuid[], s_slots uuid[],
    p_actor_kind text, p_actor uuid, p_correlation uuid
) RETURNS text
LANGUAGE sql AS $$
    -- Its launches in one project wait for each other, so that none of them sees a name as free that another has chosen.
    SELECT pg_advisory_xact_lock(hashtextextended('allocation names', 0) # hashtextextended(p_project::text, 0));
    SELECT capacity_reserve(p_now,
        ROW(p_org, p_project, p_creator_kind, p_creator, p_group, p_group_name, p_sku, p_shape, p_region, p_gpus, p_profile,
            p_price_unit, p_unit_price, p_currency, p_isolation)::launch_terms,
        ROW(p_limit_org, p_limit_project, p_limit_person)::reserve_limits,
        ROW(a_ids,
            (SELECT array_agg(CASE WHEN EXISTS (SELECT FROM allocations l WHERE l.org_id = p_org AND l.live_project_id = p_project
                        AND l.name = a.name AND l.unique_name)
                    THEN left(a.name, 71) || '-' || right(a_ids[a.n]::text, 8) ELSE a.name END ORDER BY a.n)
                FROM unnest(a_names) WITH ORDINALITY AS a (name, n)),
            a_nodes, a_usernames, a_uids, a_hosts, a_ports, a_orders)::allocation_batch,
        ROW(s_allocations, s_nodes, s_slots)::claim_batch, ROW(p_actor_kind, p_actor, p_correlation)::write_origin)
$$;
