-- What the hash of a posting covers. A type of its own: a row that is made for the type of the table has to name all of
-- its columns, so it could not be made any more as soon as a column is added.
CREATE TYPE ledger_content AS (
    org_id            uuid,
    seq               bigint,
    posted_at         timestamptz,
    id                uuid,
    kind              text,
    currency          text,
    reference         text,
    reason            text,
    corrects_entry_id uuid,
    actor_kind        text,
    actor_id          uuid,
    correlation_id    uuid,
    lines             integer,
    lines_digest      bytea,
    prepaid_after     bigint,
    held_after        bigint,
    promo_after       bigint,
    disputed_after    bigint,
    prev_hash         bytea
);
