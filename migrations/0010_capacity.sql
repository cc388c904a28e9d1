-- What is sold, to whom, and what each allocation holds. Single writer: the `capacity` crate; requests reserve
-- through capacity_reserve only.

-- ── products ─────────────────────────────────────────────────────────────────────────────────────────
CREATE TABLE sku_catalog (
    sku                text PRIMARY KEY CHECK (sku ~ '^[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?$'),
    vendor             text        NOT NULL,
    display_name       text        NOT NULL,
    resource_class     text        NOT NULL CHECK (resource_class IN ('gpu_baremetal', 'gpu_slice', 'cpu_vm')),
    capacity_shape     text        NOT NULL CHECK (capacity_shape IN ('baremetal', 'gpu_slice', 'cpu_vm')),
    -- Which slots it is made of: `gpu` or `cpu`, and the model as nodes report it.
    slot_kind          text        NOT NULL CHECK (slot_kind IN ('gpu', 'cpu')),
    slot_model         text        NOT NULL,
    -- Of one node; 0 for machines without GPUs.
    gpus_total         integer     NOT NULL CHECK (gpus_total >= 0),
    allowed_gpu_counts integer[]   NOT NULL,
    active             boolean     NOT NULL DEFAULT true,
    version            bigint      NOT NULL DEFAULT 1,
    created_at         timestamptz NOT NULL,
    updated_at         timestamptz NOT NULL,
    CHECK ((resource_class = 'gpu_baremetal') = (capacity_shape = 'baremetal')),
    CHECK ((resource_class = 'gpu_slice') = (capacity_shape = 'gpu_slice')),
    CHECK ((slot_kind = 'cpu') = (resource_class = 'cpu_vm')),
    CHECK (capacity_shape <> 'baremetal' OR allowed_gpu_counts = ARRAY[gpus_total])
);
COMMENT ON TABLE sku_catalog IS 'platform: products; everybody signed in may read them';
GRANT SELECT ON sku_catalog TO gpuaas_app;
GRANT SELECT, INSERT, UPDATE ON sku_catalog TO gpuaas_system;

-- What one machine of a product gets; the default of a GPU count is the first by name with is_default.
CREATE TABLE resource_profiles (
    sku        text        NOT NULL REFERENCES sku_catalog,
    name       text        NOT NULL CHECK (name ~ '^[a-z0-9_]{1,64}$'),
    gpus       integer     NOT NULL CHECK (gpus >= 0),
    vcpus      integer     NOT NULL CHECK (vcpus > 0),
    memory_mib bigint      NOT NULL CHECK (memory_mib > 0),
    is_default boolean     NOT NULL DEFAULT false,
    version    bigint      NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (sku, name)
);
CREATE UNIQUE INDEX resource_profiles_default ON resource_profiles (sku, gpus) WHERE is_default;
COMMENT ON TABLE resource_profiles IS 'platform: sizes of machines; everybody signed in may read them';
GRANT SELECT ON resource_profiles TO gpuaas_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON resource_profiles TO gpuaas_system;

-- Prices are dated and never change: a new price is a new row.
CREATE TABLE sku_prices (
    sku              text        NOT NULL REFERENCES sku_catalog,
    valid_from       timestamptz NOT NULL,
    unit             text        NOT NULL CHECK (unit IN ('gpu_hour', 'node_hour')),
    unit_price_minor bigint      NOT NULL CHECK (unit_price_minor >= 0),
    currency         text        NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
    created_at       timestamptz NOT NULL,
    PRIMARY KEY (sku, valid_from)
);
COMMENT ON TABLE sku_prices IS 'platform: what products cost, from when on; everybody signed in may read them';
GRANT SELECT ON sku_prices TO gpuaas_app;
GRANT SELECT, INSERT ON sku_prices TO gpuaas_system;
CREATE TRIGGER sku_prices_append_only BEFORE UPDATE OR DELETE ON sku_prices FOR EACH ROW EXECUTE FUNCTION refuse_change();

INSERT INTO sku_catalog (sku, vendor, display_name, resource_class, capacity_shape, slot_kind, slot_model, gpus_total,
    allowed_gpu_counts, created_at, updated_at)
SELECT sku, vendor, display_name, class, shape, kind, model, gpus, counts, now(), now() FROM (VALUES
    ('h200-sxm-slice', 'nvidia', 'H200 SXM, slice', 'gpu_slice', 'gpu_slice', 'gpu', 'H200', 8, ARRAY[1, 2, 4, 8]),
    ('h200-sxm-baremetal-8g', 'nvidia', 'H200 SXM, 8 GPUs, whole machine', 'gpu_baremetal', 'baremetal', 'gpu', 'H200', 8, ARRAY[8]),
    ('h100', 'nvidia', 'H100 SXM, 8 GPUs, whole machine', 'gpu_baremetal', 'baremetal', 'gpu', 'H100', 8, ARRAY[8]),
    ('mi210x', 'amd', 'Instinct MI210, 8 GPUs, whole machine', 'gpu_baremetal', 'baremetal', 'gpu', 'MI210', 8, ARRAY[8]),
    ('mi300x', 'amd', 'Instinct MI300X, 8 GPUs, whole machine', 'gpu_baremetal', 'baremetal', 'gpu', 'MI300X', 8, ARRAY[8]),
    ('compute-vm-small', 'generic', 'Virtual machine, small', 'cpu_vm', 'cpu_vm', 'cpu', '', 0, ARRAY[0]),
    ('compute-vm-medium', 'generic', 'Virtual machine, medium', 'cpu_vm', 'cpu_vm', 'cpu', '', 0, ARRAY[0])
) AS seeds (sku, vendor, display_name, class, shape, kind, model, gpus, counts);
INSERT INTO resource_profiles (sku, name, gpus, vcpus, memory_mib, is_default, created_at, updated_at)
SELECT sku, name, gpus, vcpus, memory, is_default, now(), now() FROM (VALUES
    ('h200-sxm-slice', 'h200_1g_24c_64g', 1, 24, 65536, true),
    ('h200-sxm-slice', 'h200_1g_12c_64g', 1, 12, 65536, false),
    ('h200-sxm-slice', 'h200_2g_48c_128g', 2, 48, 131072, true),
    ('h200-sxm-slice', 'h200_4g_96c_256g', 4, 96, 262144, true),
    ('h200-sxm-slice', 'h200_8g_192c_512g', 8, 192, 524288, true),
    ('compute-vm-small', 'vm_2c_8g', 0, 2, 8192, true),
    ('compute-vm-medium', 'vm_4c_16g', 0, 4, 16384, true)
) AS seeds (sku, name, gpus, vcpus, memory, is_default);
INSERT INTO sku_prices (sku, valid_from, unit, unit_price_minor, currency, created_at)
SELECT sku, '2020-01-01T00:00:00Z', unit, price, 'USD', now() FROM (VALUES
    ('h200-sxm-slice', 'gpu_hour', 450), ('h200-sxm-baremetal-8g', 'gpu_hour', 400), ('h100', 'gpu_hour', 200),
    ('mi210x', 'gpu_hour', 200), ('mi300x', 'gpu_hour', 400), ('compute-vm-small', 'node_hour', 25),
    ('compute-vm-medium', 'node_hour', 50)
) AS seeds (sku, unit, price);

-- ── allocations ──────────────────────────────────────────────────────────────────────────────────────
-- Unix ids are given out in blocks to each process and never again.
CREATE SEQUENCE allocation_uids START 20000 INCREMENT 64 MAXVALUE 2147483000;
GRANT USAGE ON SEQUENCE allocation_uids TO gpuaas_app, gpuaas_system;

CREATE TABLE allocation_groups (
    id         uuid PRIMARY KEY,
    org_id     uuid        NOT NULL,
    project_id uuid        NOT NULL,
    name       text        NOT NULL,
    members    integer     NOT NULL CHECK (members > 0),
    created_by uuid        NOT NULL,
    created_at timestamptz NOT NULL
);
CREATE INDEX allocation_groups_by_project ON allocation_groups (org_id, project_id, id);
COMMENT ON TABLE allocation_groups IS 'tenant: allocations that were made together, all or none';
ALTER TABLE allocation_groups ENABLE ROW LEVEL SECURITY;
CREATE POLICY groups_tenant ON allocation_groups TO gpuaas_app USING (org_id = (SELECT current_org()));
CREATE POLICY groups_system ON allocation_groups TO gpuaas_system USING (true);
GRANT SELECT ON allocation_groups TO gpuaas_app, gpuaas_system;

CREATE TABLE allocations (
    id               uuid PRIMARY KEY,
    org_id           uuid        NOT NULL,
    project_id       uuid        NOT NULL,
    group_id         uuid REFERENCES allocation_groups,
    name             text        NOT NULL,
    creator_kind     text        NOT NULL CHECK (creator_kind IN ('user', 'service_account')),
    creator_id       uuid        NOT NULL,
    sku              text        NOT NULL,
    shape            text        NOT NULL CHECK (shape IN ('baremetal', 'gpu_slice', 'cpu_vm')),
    region           text        NOT NULL,
    gpus             integer     NOT NULL CHECK (gpus >= 0),
    -- As it was when it was sold: the size of the machine, the price, and how it is cleaned.
    profile          jsonb       NOT NULL,
    price_unit       text        NOT NULL CHECK (price_unit IN ('gpu_hour', 'node_hour')),
    unit_price_minor bigint      NOT NULL CHECK (unit_price_minor >= 0),
    currency         text        NOT NULL,
    isolation_model  text        NOT NULL CHECK (isolation_model IN ('user-revoke', 'full-reimage')),
    -- Where it stands. Not for tenants.
    node_id          uuid        NOT NULL,
    slot_ids         uuid[]      NOT NULL,
    -- The account on the machine or in the guest.
    username         text        NOT NULL,
    uid              integer     NOT NULL,
    ssh_host         text        NOT NULL,
    ssh_port         integer     NOT NULL,
    -- The work on the node that the request authorised, sealed outside the database.
    work_order       bytea       NOT NULL,
    -- The key set that people asked for, which of it the machine has, and the sealed order to install it.
    access_version   bigint      NOT NULL DEFAULT 1,
    installed_access bigint      NOT NULL DEFAULT 0,
    access_order     bytea,
    restart_order    bytea,
    state            text        NOT NULL DEFAULT 'requested',
    state_reason     text        NOT NULL DEFAULT '',
    state_changed_at timestamptz NOT NULL,
    -- Who or what ended it: user, admin, depletion, group, node.
    release_cause    text,
    active_at        timestamptz,
    meter_opened_at  timestamptz,
    meter_closed_at  timestamptz,
    finished_at      timestamptz,
    version          bigint      NOT NULL DEFAULT 1,
    created_at       timestamptz NOT NULL,
    updated_at       timestamptz NOT NULL,
    CHECK (meter_closed_at IS NULL OR meter_opened_at IS NOT NULL),
    CHECK ((state = 'active') <= (meter_opened_at IS NOT NULL AND meter_closed_at IS NULL)),
    CHECK ((state IN ('released', 'failed')) = (finished_at IS NOT NULL))
) WITH (fillfactor = 80);
CREATE INDEX allocations_by_project ON allocations (org_id, project_id, id);
CREATE INDEX allocations_by_group ON allocations (group_id) WHERE group_id IS NOT NULL;
CREATE INDEX allocations_live ON allocations (node_id) WHERE state NOT IN ('released', 'failed');
CREATE INDEX allocations_by_state ON allocations (state, id) WHERE state NOT IN ('released', 'failed');
CREATE INDEX allocations_finished ON allocations (finished_at) WHERE finished_at IS NOT NULL;
COMMENT ON TABLE allocations IS 'tenant: a project''s lease of a node or of slots';
ALTER TABLE allocations ENABLE ROW LEVEL SECURITY;
CREATE POLICY allocations_tenant ON allocations TO gpuaas_app USING (org_id = (SELECT current_org()));
CREATE POLICY allocations_system ON allocations TO gpuaas_system USING (true);
GRANT SELECT, UPDATE ON allocations TO gpuaas_app, gpuaas_system;
INSERT INTO lifecycle_transitions VALUES
    ('allocation', 'requested', 'provisioning'), ('allocation', 'requested', 'failed'),
    ('allocation', 'provisioning', 'active'), ('allocation', 'provisioning', 'failed'),
    ('allocation', 'active', 'releasing'), ('allocation', 'releasing', 'released'),
    ('allocation', 'releasing', 'release_failed'), ('allocation', 'release_failed', 'releasing');
CREATE TRIGGER allocations_lifecycle BEFORE UPDATE OF state ON allocations
    FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('allocation');

-- Wakes whoever waits for a change: `?wait=`, streams.
CREATE FUNCTION announce_allocation() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('gpuaas_allocations', NEW.allocation_id::text);
    RETURN NULL;
END $$;

-- Every change and every phase, in the order in which they happened.
CREATE TABLE allocation_events (
    allocation_id  uuid        NOT NULL REFERENCES allocations,
    seq            bigint GENERATED ALWAYS AS IDENTITY,
    org_id         uuid        NOT NULL,
    at             timestamptz NOT NULL,
    kind           text        NOT NULL CHECK (kind IN ('state', 'phase', 'access', 'operation')),
    -- Of a change of state; the name of a phase or operation otherwise.
    from_state     text,
    to_state       text,
    name           text        NOT NULL,
    reason         text        NOT NULL DEFAULT '',
    -- How long the state that ended lasted, or the phase took.
    duration_ms    bigint,
    actor_kind     text        NOT NULL,
    actor_id       uuid,
    correlation_id uuid        NOT NULL,
    PRIMARY KEY (allocation_id, seq)
);
COMMENT ON TABLE allocation_events IS 'tenant: every change and every phase of an allocation; never changed';
ALTER TABLE allocation_events ENABLE ROW LEVEL SECURITY;
CREATE POLICY allocation_events_tenant ON allocation_events TO gpuaas_app USING (org_id = (SELECT current_org()));
CREATE POLICY allocation_events_system ON allocation_events TO gpuaas_system USING (true);
GRANT SELECT, INSERT ON allocation_events TO gpuaas_app, gpuaas_system;
CREATE TRIGGER allocation_events_append_only BEFORE UPDATE OR DELETE ON allocation_events
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER allocation_events_no_truncate BEFORE TRUNCATE ON allocation_events
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER allocation_events_announce AFTER INSERT ON allocation_events
    FOR EACH ROW EXECUTE FUNCTION announce_allocation();

-- Who may log in besides the creator, each with their own keys.
CREATE TABLE allocation_access_grants (
    allocation_id uuid        NOT NULL REFERENCES allocations,
    user_id       uuid        NOT NULL,
    org_id        uuid        NOT NULL,
    granted_by    uuid        NOT NULL,
    granted_at    timestamptz NOT NULL,
    PRIMARY KEY (allocation_id, user_id)
);
COMMENT ON TABLE allocation_access_grants IS 'tenant: people with access to an allocation besides its creator';
ALTER TABLE allocation_access_grants ENABLE ROW LEVEL SECURITY;
CREATE POLICY grants_tenant ON allocation_access_grants TO gpuaas_app USING (org_id = (SELECT current_org()));
CREATE POLICY grants_system ON allocation_access_grants TO gpuaas_system USING (true);
GRANT SELECT, INSERT, DELETE ON allocation_access_grants TO gpuaas_app, gpuaas_system;

-- ── claims ───────────────────────────────────────────────────────────────────────────────────────────
-- A node is claimed either whole or by slots. Live claims name the way in which their node is used, and it cannot
-- be changed while one does.
CREATE TABLE capacity_node_modes (
    node_id   uuid PRIMARY KEY,
    exclusive boolean NOT NULL,
    UNIQUE (node_id, exclusive)
);
COMMENT ON TABLE capacity_node_modes IS 'platform: whether a node is claimed whole or by slots';
GRANT SELECT ON capacity_node_modes TO gpuaas_system;

CREATE TABLE capacity_claims (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    allocation_id  uuid        NOT NULL REFERENCES allocations,
    node_id        uuid        NOT NULL,
    -- None: the node itself.
    slot_id        uuid,
    exclusive      boolean     NOT NULL,
    claimed_at     timestamptz NOT NULL,
    freed_at       timestamptz,
    live_exclusive boolean GENERATED ALWAYS AS (CASE WHEN freed_at IS NULL THEN exclusive END) STORED,
    FOREIGN KEY (node_id, live_exclusive) REFERENCES capacity_node_modes (node_id, exclusive),
    CHECK (slot_id IS NOT NULL OR exclusive)
);
CREATE UNIQUE INDEX capacity_claims_slot ON capacity_claims (slot_id) WHERE freed_at IS NULL AND slot_id IS NOT NULL;
CREATE UNIQUE INDEX capacity_claims_node ON capacity_claims (node_id) WHERE freed_at IS NULL AND slot_id IS NULL;
CREATE INDEX capacity_claims_by_allocation ON capacity_claims (allocation_id);
CREATE INDEX capacity_claims_live ON capacity_claims (node_id) WHERE freed_at IS NULL;
-- Who had a slot last.
CREATE INDEX capacity_claims_freed ON capacity_claims (slot_id, id) WHERE freed_at IS NOT NULL;
COMMENT ON TABLE capacity_claims IS 'platform: what each allocation holds, exclusively while it is not freed';
GRANT SELECT ON capacity_claims TO gpuaas_system;
GRANT UPDATE (freed_at) ON capacity_claims TO gpuaas_system;

-- How much an organization, a project and a person hold; counted with the claims, so that limits hold under any
-- race.
CREATE TABLE capacity_holdings (
    org_id      uuid   NOT NULL,
    kind        text   NOT NULL CHECK (kind IN ('1_org', '2_project', '3_person')),
    holder      uuid   NOT NULL,
    gpus        bigint NOT NULL CHECK (gpus >= 0),
    allocations bigint NOT NULL CHECK (allocations >= 0),
    PRIMARY KEY (org_id, kind, holder)
) WITH (fillfactor = 70);
COMMENT ON TABLE capacity_holdings IS 'tenant: GPUs and allocations held at the moment; written by capacity_reserve and capacity_free only';
ALTER TABLE capacity_holdings ENABLE ROW LEVEL SECURITY;
CREATE POLICY holdings_tenant ON capacity_holdings FOR SELECT TO gpuaas_app USING (org_id = (SELECT current_org()));
CREATE POLICY holdings_system ON capacity_holdings FOR SELECT TO gpuaas_system USING (true);
GRANT SELECT ON capacity_holdings TO gpuaas_app, gpuaas_system;

-- Makes allocations with their claims, all or none, in one round trip. Answers `ok`, `slot_taken` when a slot is no
-- longer free, or which limit is exceeded. Order of locks: slots, node modes, holdings; the audit chain comes last.
CREATE FUNCTION capacity_reserve(
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
) RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_exclusive boolean := p_shape = 'baremetal';
    v_count     bigint := cardinality(a_ids);
    v_gpus      bigint := p_gpus * v_count;
    v_over      text;
BEGIN
    IF called_by_app() AND p_org IS DISTINCT FROM current_org() THEN
        RAISE EXCEPTION 'capacity is reserved for one''s own organization only' USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF fleet_slots_reserve(s_slots, p_now) <> cardinality(s_slots) THEN
        RETURN 'slot_taken';
    END IF;
    IF p_group IS NOT NULL THEN
        INSERT INTO allocation_groups VALUES (p_group, p_org, p_project, p_group_name, v_count, p_creator, p_now);
    END IF;
    INSERT INTO allocations (id, org_id, project_id, group_id, name, creator_kind, creator_id, sku, shape, region,
        gpus, profile, price_unit, unit_price_minor, currency, isolation_model, node_id, slot_ids, username, uid,
        ssh_host, ssh_port, work_order, state_changed_at, created_at, updated_at)
    SELECT a.id, p_org, p_project, p_group, a.name, p_creator_kind, p_creator, p_sku, p_shape, p_region, p_gpus,
        p_profile, p_price_unit, p_unit_price, p_currency, p_isolation, a.node,
        ARRAY (SELECT s.slot FROM unnest(s_allocations, s_slots) AS s (allocation, slot) WHERE s.allocation = a.id),
        a.username, a.uid, a.host, a.port, a.work_order, p_now, p_now, p_now
    FROM unnest(a_ids, a_names, a_nodes, a_usernames, a_uids, a_hosts, a_ports, a_orders)
        AS a (id, name, node, username, uid, host, port, work_order);
    INSERT INTO capacity_node_modes SELECT DISTINCT n, v_exclusive FROM unnest(a_nodes) AS n ORDER BY n
        ON CONFLICT (node_id) DO UPDATE SET exclusive = excluded.exclusive
            WHERE capacity_node_modes.exclusive <> excluded.exclusive;
    INSERT INTO capacity_claims (allocation_id, node_id, slot_id, exclusive, claimed_at)
    SELECT s.allocation, s.node, s.slot, v_exclusive, p_now
        FROM unnest(s_allocations, s_nodes, s_slots) AS s (allocation, node, slot)
    UNION ALL
    SELECT a.id, a.node, NULL, true, p_now FROM unnest(a_ids, a_nodes) AS a (id, node) WHERE v_exclusive;
    INSERT INTO allocation_events (allocation_id, org_id, at, kind, to_state, name, actor_kind, actor_id, correlation_id)
    SELECT id, p_org, p_now, 'state', 'requested', 'request', p_actor_kind, p_actor, p_correlation
        FROM unnest(a_ids) AS id;
    WITH held AS (
        INSERT INTO capacity_holdings AS h (org_id, kind, holder, gpus, allocations)
        VALUES (p_org, '1_org', p_org, v_gpus, v_count), (p_org, '2_project', p_project, v_gpus, v_count),
            (p_org, '3_person', p_creator, v_gpus, v_count)
        ON CONFLICT (org_id, kind, holder)
            DO UPDATE SET gpus = h.gpus + excluded.gpus, allocations = h.allocations + excluded.allocations
        RETURNING kind, gpus, allocations
    )
    SELECT CASE WHEN bool_or(kind = '3_person' AND allocations > p_limit_person) THEN 'person'
                WHEN bool_or(kind = '2_project' AND gpus > p_limit_project) THEN 'project'
                WHEN bool_or(kind = '1_org' AND gpus > p_limit_org) THEN 'org' END
        INTO v_over FROM held;
    RETURN coalesce(v_over, 'ok');
END $$;

-- Frees all that an allocation holds, once; answers whether it held anything.
CREATE FUNCTION capacity_free(p_allocation uuid, p_now timestamptz) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    UPDATE capacity_claims SET freed_at = p_now WHERE allocation_id = p_allocation AND freed_at IS NULL;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    -- In the order in which capacity_reserve takes them.
    PERFORM FROM capacity_holdings h JOIN allocations a ON a.id = p_allocation AND h.org_id = a.org_id
        AND h.holder IN (a.org_id, a.project_id, a.creator_id) ORDER BY h.kind, h.holder FOR UPDATE OF h;
    UPDATE capacity_holdings h SET gpus = h.gpus - a.gpus, allocations = h.allocations - 1
        FROM (SELECT a.org_id, a.gpus, k.kind, k.holder FROM allocations a,
                  LATERAL (VALUES ('1_org', a.org_id), ('2_project', a.project_id), ('3_person', a.creator_id)) AS k (kind, holder)
              WHERE a.id = p_allocation) a
        WHERE h.org_id = a.org_id AND h.kind = a.kind AND h.holder = a.holder;
    RETURN true;
END $$;
REVOKE ALL ON FUNCTION capacity_reserve, capacity_free FROM PUBLIC;
GRANT EXECUTE ON FUNCTION capacity_reserve TO gpuaas_app, gpuaas_system;
GRANT EXECUTE ON FUNCTION capacity_free TO gpuaas_system;

-- ── discrepancies ────────────────────────────────────────────────────────────────────────────────────
CREATE TABLE capacity_discrepancies (
    id            uuid PRIMARY KEY,
    kind          text        NOT NULL,
    subject       text        NOT NULL,
    node_id       uuid,
    allocation_id uuid,
    message       text        NOT NULL,
    suggestion    text        NOT NULL,
    state         text        NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'resolved')),
    first_seen_at timestamptz NOT NULL,
    last_seen_at  timestamptz NOT NULL,
    resolved_at   timestamptz,
    CHECK ((state = 'resolved') = (resolved_at IS NOT NULL))
);
CREATE UNIQUE INDEX capacity_discrepancies_open ON capacity_discrepancies (kind, subject) WHERE state = 'open';
COMMENT ON TABLE capacity_discrepancies IS 'platform: where claims, allocations, tasks and nodes disagree';
GRANT SELECT, INSERT, UPDATE ON capacity_discrepancies TO gpuaas_system;
