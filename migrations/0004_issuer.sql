-- The built-in OIDC issuer: local accounts, signing keys, browser sessions, codes, refresh tokens.
-- Single writer: the `issuer` module of the `identity` crate, as gpuaas_system. Secrets that people or
-- programs hold (codes, tokens, cookies) are kept as SHA-256 only; passwords as argon2id.

CREATE TABLE local_accounts (
    id                   uuid PRIMARY KEY,
    email                text        NOT NULL UNIQUE CHECK (email = lower(email)),
    name                 text        NOT NULL,
    password_hash        text        NOT NULL,
    must_change_password boolean     NOT NULL,
    failed_attempts      integer     NOT NULL DEFAULT 0,
    locked_until         timestamptz,
    disabled_at          timestamptz,
    version              bigint      NOT NULL DEFAULT 1,
    created_at           timestamptz NOT NULL,
    updated_at           timestamptz NOT NULL
);
COMMENT ON TABLE local_accounts IS 'platform: people who sign in with a password at the built-in issuer';

CREATE TABLE issuer_keys (
    kid            text PRIMARY KEY,
    public_jwk     jsonb       NOT NULL,
    private_sealed bytea       NOT NULL,
    created_at     timestamptz NOT NULL,
    retired_at     timestamptz,
    remove_at      timestamptz,
    state          text        NOT NULL GENERATED ALWAYS AS (CASE WHEN retired_at IS NULL THEN 'active' ELSE 'retiring' END) STORED,
    CHECK ((retired_at IS NULL) = (remove_at IS NULL))
);
CREATE UNIQUE INDEX issuer_keys_one_active ON issuer_keys (state) WHERE retired_at IS NULL;
COMMENT ON TABLE issuer_keys IS 'platform: signing keys; the private half is sealed with the master key (AES-256-GCM)';

CREATE TABLE issuer_browser_sessions (
    token_hash bytea PRIMARY KEY,
    account_id uuid        NOT NULL REFERENCES local_accounts ON DELETE CASCADE,
    auth_time  timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
);
CREATE INDEX issuer_browser_sessions_by_account ON issuer_browser_sessions (account_id);
CREATE INDEX issuer_browser_sessions_by_expiry ON issuer_browser_sessions (expires_at);
COMMENT ON TABLE issuer_browser_sessions IS 'platform: browsers that are signed in at the issuer';

CREATE TABLE issuer_codes (
    code_hash      bytea PRIMARY KEY,
    account_id     uuid        NOT NULL REFERENCES local_accounts ON DELETE CASCADE,
    browser_hash   bytea       NOT NULL,
    client_id      text        NOT NULL,
    redirect_uri   text        NOT NULL,
    code_challenge text        NOT NULL,
    scope          text        NOT NULL,
    nonce          text,
    auth_time      timestamptz NOT NULL,
    expires_at     timestamptz NOT NULL,
    used_at        timestamptz,
    session_id     uuid REFERENCES account_sessions ON DELETE SET NULL
);
CREATE INDEX issuer_codes_by_expiry ON issuer_codes (expires_at);
CREATE INDEX issuer_codes_by_session ON issuer_codes (session_id);
COMMENT ON TABLE issuer_codes IS 'platform: authorization codes; a used one stays until it is old, to notice its reuse';

CREATE TABLE issuer_refresh_tokens (
    token_hash   bytea PRIMARY KEY,
    session_id   uuid        NOT NULL REFERENCES account_sessions ON DELETE CASCADE,
    account_id   uuid        NOT NULL REFERENCES local_accounts ON DELETE CASCADE,
    browser_hash bytea,
    client_id    text        NOT NULL,
    scope        text        NOT NULL,
    auth_time    timestamptz NOT NULL,
    created_at   timestamptz NOT NULL,
    expires_at   timestamptz NOT NULL,
    used_at      timestamptz
);
CREATE INDEX issuer_refresh_tokens_by_session ON issuer_refresh_tokens (session_id);
CREATE INDEX issuer_refresh_tokens_by_browser ON issuer_refresh_tokens (browser_hash);
CREATE INDEX issuer_refresh_tokens_by_expiry ON issuer_refresh_tokens (expires_at);
COMMENT ON TABLE issuer_refresh_tokens IS 'platform: refresh tokens of a session; a used one that comes back revokes the session';

CREATE TABLE issuer_device_codes (
    device_hash      bytea PRIMARY KEY,
    user_code        text        NOT NULL UNIQUE,
    client_id        text        NOT NULL,
    scope            text        NOT NULL,
    source_ip        text,
    interval_seconds integer     NOT NULL,
    created_at       timestamptz NOT NULL,
    expires_at       timestamptz NOT NULL,
    last_polled_at   timestamptz,
    account_id       uuid REFERENCES local_accounts ON DELETE CASCADE,
    browser_hash     bytea,
    auth_time        timestamptz,
    approved_at      timestamptz,
    denied_at        timestamptz,
    used_at          timestamptz,
    CHECK ((approved_at IS NULL) = (account_id IS NULL)),
    CHECK ((approved_at IS NULL) = (auth_time IS NULL)),
    CHECK (approved_at IS NULL OR denied_at IS NULL),
    CHECK (used_at IS NULL OR approved_at IS NOT NULL)
);
CREATE INDEX issuer_device_codes_by_expiry ON issuer_device_codes (expires_at);
COMMENT ON TABLE issuer_device_codes IS 'platform: sign-ins of devices without a browser';

GRANT SELECT, INSERT, UPDATE, DELETE ON local_accounts, issuer_keys, issuer_browser_sessions, issuer_codes,
    issuer_refresh_tokens, issuer_device_codes TO gpuaas_system;
