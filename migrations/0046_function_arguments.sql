-- The arguments of functions that took more than a handful, as composite types. A batch holds lists of equal length, an
-- element for each row.

-- Who wrote something, and because of which request.
CREATE TYPE write_origin AS (
    actor_kind     text,
    actor_id       uuid,
    correlation_id uuid
);

-- A row of audit_logs without what its chain gives it. The chain is the one of `org_id`.
CREATE TYPE audit_entry AS (
    id             uuid,
    org_id         uuid,
    at             timestamptz,
    actor_kind     text,
    actor_id       uuid,
    actor_role     text,
    on_behalf_of   uuid,
    action         text,
    target_kind    text,
    target_id      text,
    project_id     uuid,
    result         text,
    code           text,
    correlation_id uuid,
    source_ip      text,
    before_digest  bytea,
    after_digest   bytea,
    repeats        bigint
);

-- Events of one transaction: their time, correlation and trace are those of the transaction.
CREATE TYPE event_batch AS (
    ids      uuid[],
    streams  text[],
    types    text[],
    versions smallint[],
    orgs     uuid[],
    projects uuid[],
    payloads jsonb[]
);

-- The answer that is stored under an idempotency key.
CREATE TYPE stored_answer AS (
    principal_id uuid,
    endpoint     text,
    key          text,
    status       smallint,
    body         bytea
);

-- Messages of the bus.
CREATE TYPE message_batch AS (
    ids          uuid[],
    streams      text[],
    types        text[],
    versions     smallint[],
    occurred     timestamptz[],
    correlations uuid[],
    traceparents text[],
    orgs         uuid[],
    projects     uuid[],
    payloads     jsonb[]
);

CREATE TYPE new_saga_run AS (
    id             uuid,
    name           text,
    spec_version   integer,
    subject        text,
    org_id         uuid,
    input          jsonb,
    deadline       timestamptz,
    correlation_id uuid,
    traceparent    text
);

-- Slots of one node; or the whole node with exactly so many.
CREATE TYPE slot_request AS (
    kind    text,
    model   text,
    region  text,
    sku     text,
    pool_id uuid,
    labels  jsonb,
    slots   integer,
    whole   boolean
);

-- What the allocations of one launch have in common.
CREATE TYPE launch_terms AS (
    org_id           uuid,
    project_id       uuid,
    creator_kind     text,
    creator_id       uuid,
    group_id         uuid,
    group_name       text,
    sku              text,
    shape            text,
    region           text,
    gpus             integer,
    profile          jsonb,
    price_unit       text,
    unit_price_minor bigint,
    currency         text,
    isolation_model  text
);

CREATE TYPE reserve_limits AS (
    org_gpus           bigint,
    project_gpus       bigint,
    person_allocations bigint
);

CREATE TYPE allocation_batch AS (
    ids         uuid[],
    names       text[],
    nodes       uuid[],
    usernames   text[],
    uids        integer[],
    ssh_hosts   text[],
    ssh_ports   integer[],
    work_orders bytea[]
);

CREATE TYPE claim_batch AS (
    allocations uuid[],
    nodes       uuid[],
    slots       uuid[]
);

-- What the meters of one launch have in common.
CREATE TYPE meter_terms AS (
    org_id           uuid,
    project_id       uuid,
    person_id        uuid,
    sku              text,
    unit             text,
    units            integer,
    unit_price_minor bigint,
    currency         text
);

-- Why a meter is paused.
CREATE TYPE pause_cause AS (
    finding_id uuid,
    reason     text,
    evidence   jsonb
);

-- A posting without what its chain and its lines give it.
CREATE TYPE new_posting AS (
    org_id            uuid,
    currency          text,
    at                timestamptz,
    id                uuid,
    kind              text,
    reference         text,
    reason            text,
    corrects_entry_id uuid,
    actor_kind        text,
    actor_id          uuid,
    correlation_id    uuid
);

-- The lines of one posting.
CREATE TYPE line_batch AS (
    accounts    text[],
    amounts     bigint[],
    projects    uuid[],
    allocations uuid[],
    apps        uuid[],
    meters      uuid[],
    starts      timestamptz[],
    ends        timestamptz[]
);

-- What the leaf of a line covers.
CREATE TYPE ledger_line_content AS (
    line            integer,
    account         text,
    amount_minor    bigint,
    project_id      uuid,
    allocation_id   uuid,
    app_instance_id uuid,
    meter_id        uuid,
    window_start    timestamptz,
    window_end      timestamptz,
    correlation_id  uuid
);

-- Chains that were signed with one key on one day.
CREATE TYPE checkpoint_batch AS (
    orgs       uuid[],
    prevs      bigint[],
    seqs       bigint[],
    hashes     bytea[],
    signatures bytea[]
);

-- Neither this release nor the one before reads or writes these.
DROP FUNCTION saga_timeline(text, integer);
-- expand/contract: see the statements of the release before (migrations/released).
ALTER TABLE local_accounts DROP COLUMN failed_attempts;
-- expand/contract: see the statements of the release before (migrations/released).
ALTER TABLE resource_profiles DROP COLUMN version;

-- Who began a top-up stands in the audit trail. The release before writes these two; the next drops them.
ALTER TABLE topups ALTER COLUMN creator_kind DROP NOT NULL, ALTER COLUMN creator_id DROP NOT NULL;
