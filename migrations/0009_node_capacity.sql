-- What each node could take, kept beside its slots so that placement never looks at the whole fleet. Single writer:
-- the triggers below; nothing else may write node_capacity, so it cannot disagree with nodes and slots.

-- Where the users of a node reach it; the hostname and port 22 when nobody said otherwise.
ALTER TABLE nodes ADD COLUMN ssh_host text;
ALTER TABLE nodes ADD COLUMN ssh_port integer CHECK (ssh_port BETWEEN 1 AND 65535);
-- What a node is sold as: anything that its slots fit, or only the whole machine, with the drivers that it has.
ALTER TABLE nodes ADD COLUMN serves text NOT NULL DEFAULT 'any' CHECK (serves IN ('any', 'baremetal'));
-- The NUMA node of the fabric's function, when it is not known to be the GPU's.
ALTER TABLE node_resource_slots ADD COLUMN fabric_numa integer;
-- Why it could not be cleaned.
ALTER TABLE node_resource_slots ADD COLUMN cleanup_reason text;

CREATE TABLE node_capacity (
    node_id         uuid    NOT NULL REFERENCES nodes,
    kind            text    NOT NULL,
    model           text    NOT NULL,
    region          text    NOT NULL,
    pool_id         uuid,
    labels          jsonb   NOT NULL,
    sku_eligibility text[]  NOT NULL,
    -- Active and not cordoned: new work may be placed here.
    placeable       boolean NOT NULL,
    -- Parts of it can be sold, not only the whole.
    slices          boolean NOT NULL,
    -- Slots of this kind and model, whatever their state.
    total           integer NOT NULL,
    -- Those that could be sold now, each by itself.
    free            integer NOT NULL,
    -- The most of them on one NUMA node.
    numa_fit        integer NOT NULL,
    -- Those that could be sold now, as far as they go: each by itself, or where no parts are sold with all others.
    ready           integer NOT NULL,
    -- Those that nobody uses and that cannot be sold: not approved, sick, being cleaned, or blocked.
    cleaning        integer NOT NULL,
    blocked         integer NOT NULL,
    -- The node has slots of no other kind or model.
    alone           boolean NOT NULL,
    -- Every slot of the node is ready.
    whole           boolean GENERATED ALWAYS AS (alone AND ready = total) STORED,
    PRIMARY KEY (node_id, kind, model)
) WITH (fillfactor = 70);
-- The region first, which whoever knows the node does not ask for: one node is found by its key, whatever the planner
-- knows of the table.
CREATE INDEX node_capacity_fit ON node_capacity (region, kind, model, free, numa_fit, node_id) WHERE placeable;
CREATE INDEX node_capacity_whole ON node_capacity (region, kind, model, total, node_id) WHERE placeable AND whole;
CREATE INDEX node_capacity_potential ON node_capacity (region, kind, model, (ready + cleaning + blocked));
CREATE INDEX node_capacity_soon ON node_capacity (region, kind, model, (ready + cleaning)) WHERE placeable AND cleaning > 0;
COMMENT ON TABLE node_capacity IS 'platform: what each node could take; written by triggers only';
GRANT SELECT ON node_capacity TO gpuaas_system;

-- A slot that can be sold: approved, probed, healthy, with nothing in its way, and a GPU with fabric of its own that
-- is not known to be on another NUMA node.
CREATE FUNCTION slot_is_free(s node_resource_slots) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT s.state = 'available' AND s.health = 'healthy' AND s.blockers = '[]'
        AND (s.kind <> 'gpu' OR s.fabric_mode = 'vf' AND coalesce(s.fabric_numa = s.numa_node, true))
$$;

-- The same for what its node serves: a whole machine needs no fabric for each of its GPUs.
CREATE FUNCTION slot_is_ready(s node_resource_slots, p_serves text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE p_serves WHEN 'any' THEN slot_is_free(s)
        ELSE s.state = 'available' AND s.health = 'healthy' AND s.blockers = '[]' END
$$;

-- Counts slots of nodes, by kind and model.
CREATE FUNCTION node_capacity_counts(p_nodes uuid[]) RETURNS TABLE (
    node_id uuid, kind text, model text, total bigint, free bigint, numa_fit bigint, ready bigint, cleaning bigint,
    blocked bigint
) LANGUAGE sql STABLE AS $$
    SELECT s.node_id, s.kind, s.model, sum(s.total)::bigint, sum(s.free)::bigint, max(s.free), sum(s.ready)::bigint,
        sum(s.cleaning)::bigint, sum(s.blocked)::bigint
    FROM (SELECT s.node_id, s.kind, s.model, count(*) AS total,
              count(*) FILTER (WHERE n.serves = 'any' AND slot_is_free(s)) AS free,
              count(*) FILTER (WHERE slot_is_ready(s, n.serves)) AS ready,
              count(*) FILTER (WHERE s.state = 'cleaning') AS cleaning,
              count(*) FILTER (WHERE s.state IN ('discovered', 'approved', 'cleanup_blocked', 'quarantined')
                  OR s.state = 'available' AND NOT slot_is_ready(s, n.serves)) AS blocked
          FROM node_resource_slots s JOIN nodes n ON n.id = s.node_id WHERE s.node_id = ANY (p_nodes)
          GROUP BY s.node_id, s.kind, s.model, s.numa_node) s
    GROUP BY s.node_id, s.kind, s.model
$$;

-- All that is kept of nodes, anew: after slots came, went, or became of another kind or model, or the node was to
-- serve something else.
CREATE FUNCTION node_capacity_refresh(p_nodes uuid[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    -- First the lock, then the sums in a statement of their own: whoever waited here counts what the other wrote.
    PERFORM FROM node_capacity WHERE node_id = ANY (p_nodes) ORDER BY node_id, kind, model FOR UPDATE;
    INSERT INTO node_capacity AS c (node_id, kind, model, region, pool_id, labels, sku_eligibility, placeable, slices,
        total, free, numa_fit, ready, cleaning, blocked, alone)
    SELECT s.node_id, s.kind, s.model, n.region, n.pool_id, n.labels, n.sku_eligibility,
        n.state = 'active' AND n.cordon_reason IS NULL, n.serves = 'any', s.total, s.free, s.numa_fit, s.ready,
        s.cleaning, s.blocked, count(*) OVER (PARTITION BY s.node_id) = 1
    FROM node_capacity_counts(p_nodes) s JOIN nodes n ON n.id = s.node_id
    ORDER BY s.node_id, s.kind, s.model
    ON CONFLICT (node_id, kind, model) DO UPDATE SET region = excluded.region, pool_id = excluded.pool_id,
        labels = excluded.labels, sku_eligibility = excluded.sku_eligibility, placeable = excluded.placeable,
        slices = excluded.slices, total = excluded.total, free = excluded.free, numa_fit = excluded.numa_fit,
        ready = excluded.ready, cleaning = excluded.cleaning, blocked = excluded.blocked, alone = excluded.alone;
    DELETE FROM node_capacity c WHERE c.node_id = ANY (p_nodes) AND NOT EXISTS (
        SELECT FROM node_resource_slots s WHERE s.node_id = c.node_id AND s.kind = c.kind AND s.model = c.model);
END $$;

-- Only the sums, and only of the kinds and models that changed: whoever holds one of a node's rows never waits for
-- another.
CREATE FUNCTION node_capacity_recount(p_nodes uuid[], p_kinds text[], p_models text[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    PERFORM FROM node_capacity WHERE node_id = ANY (p_nodes) AND kind = ANY (p_kinds) AND model = ANY (p_models)
        ORDER BY node_id, kind, model FOR UPDATE;
    UPDATE node_capacity c SET total = s.total, free = s.free, numa_fit = s.numa_fit, ready = s.ready,
        cleaning = s.cleaning, blocked = s.blocked
    FROM node_capacity_counts(p_nodes) s
    WHERE s.kind = ANY (p_kinds) AND s.model = ANY (p_models)
        AND c.node_id = s.node_id AND c.kind = s.kind AND c.model = s.model;
END $$;
REVOKE ALL ON FUNCTION node_capacity_counts, node_capacity_refresh, node_capacity_recount FROM PUBLIC;

CREATE FUNCTION slots_came_or_went() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM node_capacity_refresh(nodes) FROM
        (SELECT array_agg(DISTINCT node_id) AS nodes FROM changed HAVING count(*) > 0) touched;
    RETURN NULL;
END $$;
CREATE FUNCTION slots_changed() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT id, node_id, kind, model FROM changed EXCEPT SELECT id, node_id, kind, model FROM before) THEN
        PERFORM node_capacity_refresh(array_agg(DISTINCT node_id))
            FROM (SELECT node_id FROM changed UNION SELECT node_id FROM before) touched;
    -- What was reserved and is used now counts the same; nobody need wait for the node's row.
    ELSIF EXISTS (SELECT FROM changed c JOIN before b USING (id)
                  WHERE NOT (c.state IN ('reserved', 'in_use') AND b.state IN ('reserved', 'in_use'))) THEN
        PERFORM node_capacity_recount(array_agg(DISTINCT node_id), array_agg(DISTINCT kind), array_agg(DISTINCT model))
            FROM changed;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER slots_inserted AFTER INSERT ON node_resource_slots REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION slots_came_or_went();
CREATE TRIGGER slots_updated AFTER UPDATE ON node_resource_slots REFERENCING NEW TABLE AS changed OLD TABLE AS before
    FOR EACH STATEMENT EXECUTE FUNCTION slots_changed();
CREATE TRIGGER slots_deleted AFTER DELETE ON node_resource_slots REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION slots_came_or_went();

CREATE FUNCTION node_standing_changed() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    -- In the order in which everybody locks them.
    PERFORM FROM node_capacity WHERE node_id = NEW.id ORDER BY node_id, kind, model FOR UPDATE;
    UPDATE node_capacity SET region = NEW.region, pool_id = NEW.pool_id, labels = NEW.labels,
        sku_eligibility = NEW.sku_eligibility, placeable = NEW.state = 'active' AND NEW.cordon_reason IS NULL
        WHERE node_id = NEW.id;
    IF NEW.serves <> OLD.serves THEN
        PERFORM node_capacity_refresh(ARRAY[NEW.id]);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER nodes_standing
    AFTER UPDATE OF state, cordon_reason, region, pool_id, labels, sku_eligibility, serves ON nodes
    FOR EACH ROW EXECUTE FUNCTION node_standing_changed();
SELECT node_capacity_refresh(array_agg(DISTINCT node_id)) FROM node_resource_slots HAVING count(*) > 0;

-- Launches without a region go through all of them; everybody signed in sees their codes in the catalog.
GRANT SELECT (code) ON regions TO gpuaas_app;

-- ── candidates ───────────────────────────────────────────────────────────────────────────────────────
-- The best nodes of one region for a request, in the order of the packing rule: those that nobody else holds, held
-- until the transaction ends; or, when nothing is to be held, whoever holds them.
CREATE FUNCTION fleet_nodes_best(
    p_kind text, p_model text, p_region text, p_sku text, p_pool uuid, p_labels jsonb,
    p_need integer, p_whole boolean, p_spread boolean, p_limit integer, p_hold boolean
) RETURNS uuid[]
-- Planned once, and by index: what is true of a fleet of ten nodes must not decide for one of ten thousand.
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET jit = off AS $$
DECLARE
    v_nodes uuid[] := '{}';
    v_more  uuid[];
    v_level integer;
    v_low   integer;
    v_high  integer;
BEGIN
    -- A range of one total, and sorted by it: so only the index of whole nodes gives this order.
    IF p_whole AND p_hold THEN
        RETURN ARRAY (SELECT c.node_id FROM node_capacity c
            WHERE c.placeable AND c.kind = p_kind AND c.model = p_model AND c.region = p_region AND c.whole
                AND c.total BETWEEN p_need AND p_need AND (p_pool IS NULL OR c.pool_id = p_pool) AND c.labels @> p_labels
                AND (c.sku_eligibility = '{}' OR p_sku = ANY (c.sku_eligibility))
            ORDER BY c.total, c.node_id LIMIT p_limit FOR UPDATE SKIP LOCKED);
    ELSIF p_whole THEN
        RETURN ARRAY (SELECT c.node_id FROM node_capacity c
            WHERE c.placeable AND c.kind = p_kind AND c.model = p_model AND c.region = p_region AND c.whole
                AND c.total BETWEEN p_need AND p_need AND (p_pool IS NULL OR c.pool_id = p_pool) AND c.labels @> p_labels
                AND (c.sku_eligibility = '{}' OR p_sku = ANY (c.sku_eligibility))
            ORDER BY c.total, c.node_id LIMIT p_limit);
    END IF;
    -- First nodes where it fits on one NUMA node, then the others; level by level of free slots, so that each step
    -- is one descent of the index.
    FOR v_pass IN 1..2 LOOP
        v_low := CASE v_pass WHEN 1 THEN p_need ELSE 0 END;
        v_high := CASE v_pass WHEN 1 THEN 2147483647 ELSE p_need - 1 END;
        v_level := CASE WHEN p_spread THEN 2147483647 ELSE p_need END;
        LOOP
            IF p_spread THEN
                v_level := (SELECT c.free FROM node_capacity c
                    WHERE c.placeable AND c.kind = p_kind AND c.model = p_model AND c.region = p_region
                        AND c.free <= v_level ORDER BY c.free DESC LIMIT 1);
            ELSE
                v_level := (SELECT c.free FROM node_capacity c
                    WHERE c.placeable AND c.kind = p_kind AND c.model = p_model AND c.region = p_region
                        AND c.free >= v_level ORDER BY c.free LIMIT 1);
            END IF;
            EXIT WHEN v_level IS NULL OR v_level < p_need;
            IF p_hold THEN
                v_more := ARRAY (SELECT c.node_id FROM node_capacity c
                    WHERE c.placeable AND c.kind = p_kind AND c.model = p_model AND c.region = p_region
                        AND c.free = v_level AND c.numa_fit BETWEEN v_low AND v_high
                        AND (p_pool IS NULL OR c.pool_id = p_pool) AND c.labels @> p_labels
                        AND (c.sku_eligibility = '{}' OR p_sku = ANY (c.sku_eligibility))
                    ORDER BY c.numa_fit, c.node_id LIMIT p_limit - cardinality(v_nodes) FOR UPDATE SKIP LOCKED);
            ELSE
                v_more := ARRAY (SELECT c.node_id FROM node_capacity c
                    WHERE c.placeable AND c.kind = p_kind AND c.model = p_model AND c.region = p_region
                        AND c.free = v_level AND c.numa_fit BETWEEN v_low AND v_high
                        AND (p_pool IS NULL OR c.pool_id = p_pool) AND c.labels @> p_labels
                        AND (c.sku_eligibility = '{}' OR p_sku = ANY (c.sku_eligibility))
                    ORDER BY c.numa_fit, c.node_id LIMIT p_limit - cardinality(v_nodes));
            END IF;
            v_nodes := v_nodes || v_more;
            IF cardinality(v_nodes) >= p_limit THEN
                RETURN v_nodes;
            END IF;
            v_level := v_level + CASE WHEN p_spread THEN -1 ELSE 1 END;
        END LOOP;
    END LOOP;
    RETURN v_nodes;
END $$;

-- How many members these nodes could take together.
CREATE FUNCTION fleet_nodes_take(p_nodes uuid[], p_kind text, p_model text, p_need integer, p_whole boolean)
RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT coalesce(sum(CASE WHEN p_whole THEN (c.whole AND c.total = p_need)::integer ELSE c.free / p_need END), 0)
        FROM node_capacity c
        WHERE c.node_id = ANY (p_nodes) AND c.kind = p_kind AND c.model = p_model AND c.placeable
$$;

-- The best nodes for so many members, each held until the transaction ends, with their free slots. Nodes that somebody
-- else holds are passed over. With p_wait they are waited for, and only while nothing else is held, so that nobody
-- waits in a circle: one member waits for the best node; several let go of what they have and try again. Slots that
-- somebody else holds are passed over always.
CREATE FUNCTION fleet_candidates(
    p_kind text, p_model text, p_region text, p_sku text, p_pool uuid, p_labels jsonb,
    -- Slots of one node; or the whole node with exactly so many.
    p_need integer, p_whole boolean,
    p_members integer, p_spread boolean, p_limit integer, p_wait boolean
) RETURNS TABLE (
    node_id uuid, numa_fit integer, free integer, total integer, ssh_host text, ssh_port integer, slot_id uuid,
    slot_index integer, numa_node integer, fabric_vf text, fabric_numa integer, pci_address text, nvme_device text
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    v_nodes uuid[];
BEGIN
    IF p_members = 1 AND NOT p_wait THEN
        v_nodes := fleet_nodes_best(p_kind, p_model, p_region, p_sku, p_pool, p_labels, p_need, p_whole, p_spread,
            p_limit, true);
    ELSE
        FOR v_try IN 1 .. CASE WHEN NOT p_wait THEN 1 WHEN p_members = 1 THEN 200 ELSE 40 END LOOP
            IF v_try > 1 AND p_members > 1 THEN
                PERFORM pg_sleep(0.005 + 0.01 * random());
            END IF;
            -- Leaving this block by its exception gives up what was held in it.
            BEGIN
                v_nodes := fleet_nodes_best(p_kind, p_model, p_region, p_sku, p_pool, p_labels, p_need, p_whole,
                    p_spread, CASE WHEN p_members = 1 THEN 1 ELSE p_limit END, p_members > 1);
                IF p_members = 1 THEN
                    PERFORM FROM node_capacity c WHERE c.node_id = ANY (v_nodes) AND c.kind = p_kind
                        AND c.model = p_model FOR UPDATE;
                END IF;
                EXIT WHEN fleet_nodes_take(v_nodes, p_kind, p_model, p_need, p_whole) >= p_members
                    OR p_members = 1 AND cardinality(v_nodes) = 0;
                RAISE EXCEPTION 'not enough' USING ERRCODE = 'GP001';
            EXCEPTION WHEN SQLSTATE 'GP001' THEN
                v_nodes := '{}';
            END;
            -- Nobody has it: no use in waiting.
            EXIT WHEN p_members > 1 AND p_wait AND fleet_nodes_take(
                fleet_nodes_best(p_kind, p_model, p_region, p_sku, p_pool, p_labels, p_need, p_whole, p_spread,
                    p_limit, false), p_kind, p_model, p_need, p_whole) < p_members;
        END LOOP;
    END IF;
    RETURN QUERY
        SELECT c.node_id, c.numa_fit, CASE WHEN p_whole THEN c.ready ELSE c.free END, c.total,
            coalesce(n.ssh_host, n.hostname), coalesce(n.ssh_port, 22), s.id, s.slot_index, s.numa_node, s.fabric_vf,
            coalesce(s.fabric_numa, s.numa_node), s.pci_address, s.nvme_device
        FROM unnest(v_nodes) WITH ORDINALITY AS v (id, n)
            JOIN node_capacity c ON c.node_id = v.id AND c.kind = p_kind AND c.model = p_model
            JOIN nodes n ON n.id = v.id
            JOIN LATERAL (SELECT * FROM node_resource_slots s
                WHERE s.node_id = v.id AND s.kind = p_kind AND s.model = p_model AND slot_is_ready(s, n.serves)
                ORDER BY s.slot_index FOR NO KEY UPDATE SKIP LOCKED) s ON true
        ORDER BY v.n, s.slot_index;
END $$;

-- What is needed to say why nothing fits, without looking at the whole fleet: of each region the nodes with most
-- free slots, those that are whole, and those that would have most if all was clean, or all was ready. For a whole
-- node what is ready counts as free; for parts of one, nodes that sell none do not count.
CREATE FUNCTION fleet_outlook(
    p_kind text, p_model text, p_sku text, p_pool uuid, p_labels jsonb, p_whole_total integer, p_limit integer
) RETURNS TABLE (
    node_id uuid, region text, placeable boolean, total integer, free integer, numa_fit integer, cleaning integer,
    blocked integer, whole boolean
)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
    SELECT DISTINCT ON (c.region, c.node_id) c.node_id, c.region, c.placeable, c.total,
        CASE WHEN p_whole_total IS NULL THEN c.free ELSE c.ready END, c.numa_fit, c.cleaning, c.blocked, c.whole
    FROM regions r CROSS JOIN LATERAL (
        (SELECT * FROM node_capacity c WHERE c.placeable AND c.kind = p_kind AND c.model = p_model
             AND c.region = r.code AND (p_pool IS NULL OR c.pool_id = p_pool) AND c.labels @> p_labels
             AND (c.sku_eligibility = '{}' OR p_sku = ANY (c.sku_eligibility)) AND (c.slices OR p_whole_total > 0)
         ORDER BY c.free DESC LIMIT p_limit)
        UNION ALL
        (SELECT * FROM node_capacity c WHERE c.placeable AND c.whole AND c.kind = p_kind AND c.model = p_model
             AND c.region = r.code AND c.total = p_whole_total AND (p_pool IS NULL OR c.pool_id = p_pool)
             AND c.labels @> p_labels AND (c.sku_eligibility = '{}' OR p_sku = ANY (c.sku_eligibility))
         LIMIT p_limit)
        UNION ALL
        (SELECT * FROM node_capacity c WHERE c.placeable AND c.cleaning > 0 AND c.kind = p_kind AND c.model = p_model
             AND c.region = r.code AND (p_whole_total IS NULL OR c.total = p_whole_total)
             AND (p_pool IS NULL OR c.pool_id = p_pool) AND c.labels @> p_labels
             AND (c.sku_eligibility = '{}' OR p_sku = ANY (c.sku_eligibility)) AND (c.slices OR p_whole_total > 0)
         ORDER BY c.ready + c.cleaning DESC LIMIT p_limit)
        UNION ALL
        (SELECT * FROM node_capacity c WHERE c.kind = p_kind AND c.model = p_model
             AND c.region = r.code AND (p_whole_total IS NULL OR c.total = p_whole_total)
             AND (p_pool IS NULL OR c.pool_id = p_pool) AND c.labels @> p_labels
             AND (c.sku_eligibility = '{}' OR p_sku = ANY (c.sku_eligibility)) AND (c.slices OR p_whole_total > 0)
         ORDER BY c.ready + c.cleaning + c.blocked DESC LIMIT p_limit)
    ) c
$$;

-- How much of each product is there and free, by region: what the catalog shows. A size of 0 means the whole node
-- with exactly so many slots.
CREATE FUNCTION fleet_availability(
    p_skus text[], p_kinds text[], p_models text[], p_totals integer[], p_sizes integer[]
) RETURNS TABLE (
    sku text, region text, total bigint, free bigint, largest integer, whole_nodes bigint, launchable bigint
) LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT w.sku, c.region, sum(c.total), coalesce(sum(f.free) FILTER (WHERE c.placeable), 0),
        coalesce(max(f.free) FILTER (WHERE c.placeable), 0),
        count(*) FILTER (WHERE c.placeable AND c.whole),
        CASE WHEN w.size = 0 THEN count(*) FILTER (WHERE c.placeable AND c.whole AND c.total = w.total)
             ELSE coalesce(sum(c.free / nullif(w.size, 0)) FILTER (WHERE c.placeable), 0) END
    FROM unnest(p_skus, p_kinds, p_models, p_totals, p_sizes) AS w (sku, kind, model, total, size)
        JOIN node_capacity c ON c.kind = w.kind AND c.model = w.model
            AND (c.sku_eligibility = '{}' OR w.sku = ANY (c.sku_eligibility)) AND (c.slices OR w.size = 0)
        CROSS JOIN LATERAL (SELECT CASE w.size WHEN 0 THEN c.ready ELSE c.free END AS free) f
    GROUP BY w.sku, w.total, w.size, c.region
$$;

-- Available slots become reserved; answers how many, and the caller refuses anything but all.
CREATE FUNCTION fleet_slots_reserve(p_slots uuid[], p_now timestamptz) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_count integer;
BEGIN
    UPDATE node_resource_slots SET state = 'reserved', version = version + 1, updated_at = p_now
        WHERE id = ANY (p_slots) AND state = 'available';
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END $$;
REVOKE ALL ON FUNCTION fleet_nodes_best, fleet_nodes_take, fleet_candidates, fleet_outlook, fleet_availability,
    fleet_slots_reserve FROM PUBLIC;
GRANT EXECUTE ON FUNCTION fleet_candidates, fleet_outlook, fleet_availability, fleet_slots_reserve
    TO gpuaas_app, gpuaas_system;
