-- The authorities and signers that all trust in the fleet rests on. Single writer: `fleet::authority`, as
-- gpuaas_system, in platform scope.

-- ── authorities and signers ──────────────────────────────────────────────────────────────────────────
-- `sealed` holds the certificates together with their keys, under the master key: a row that was written by
-- somebody without that key is worth nothing. The readable columns are for showing.
CREATE TABLE authorities (
    id                  uuid PRIMARY KEY,
    state               text        NOT NULL DEFAULT 'staged',
    root_certificate    text        NOT NULL,
    issuing_certificate text        NOT NULL,
    sealed              bytea       NOT NULL,
    not_after           timestamptz NOT NULL,
    version             bigint      NOT NULL DEFAULT 1,
    created_at          timestamptz NOT NULL,
    updated_at          timestamptz NOT NULL
);
CREATE UNIQUE INDEX authorities_one_active ON authorities (state) WHERE state = 'active';
CREATE UNIQUE INDEX authorities_one_staged ON authorities (state) WHERE state = 'staged';
COMMENT ON TABLE authorities IS 'platform: generations of the certificate authority';
GRANT SELECT, INSERT, UPDATE ON authorities TO gpuaas_system;

CREATE TABLE signer_keys (
    signer_version integer PRIMARY KEY CHECK (signer_version > 0),
    state          text        NOT NULL DEFAULT 'staged',
    public_key     bytea       NOT NULL,
    version        bigint      NOT NULL DEFAULT 1,
    created_at     timestamptz NOT NULL,
    updated_at     timestamptz NOT NULL
);
CREATE UNIQUE INDEX signer_keys_one_active ON signer_keys (state) WHERE state = 'active';
CREATE UNIQUE INDEX signer_keys_one_staged ON signer_keys (state) WHERE state = 'staged';
COMMENT ON TABLE signer_keys IS 'platform: public keys that task signatures are checked with; the private ones are not here';
GRANT SELECT, INSERT, UPDATE ON signer_keys TO gpuaas_system;

-- What nodes are told about signers: each document is signed by the key that they pinned when they enrolled.
CREATE TABLE signer_keysets (
    serial     bigint PRIMARY KEY CHECK (serial > 0),
    document   bytea       NOT NULL,
    signature  bytea       NOT NULL,
    created_at timestamptz NOT NULL
);
COMMENT ON TABLE signer_keysets IS 'platform: signed lists of the signers, newest last';
GRANT SELECT, INSERT ON signer_keysets TO gpuaas_system;
CREATE TRIGGER signer_keysets_append_only BEFORE UPDATE OR DELETE ON signer_keysets FOR EACH ROW EXECUTE FUNCTION refuse_change();

INSERT INTO lifecycle_transitions
SELECT lifecycle, from_state, to_state FROM (VALUES ('authority'), ('signer')) AS l (lifecycle), (VALUES
    ('staged', 'active'), ('staged', 'revoked'), ('active', 'grace'), ('active', 'revoked'),
    ('grace', 'retired'), ('grace', 'revoked'), ('retired', 'revoked')
) AS t (from_state, to_state);
CREATE TRIGGER authorities_lifecycle BEFORE UPDATE OF state ON authorities
    FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('authority');
CREATE TRIGGER signer_keys_lifecycle BEFORE UPDATE OF state ON signer_keys
    FOR EACH ROW EXECUTE FUNCTION enforce_lifecycle('signer');
