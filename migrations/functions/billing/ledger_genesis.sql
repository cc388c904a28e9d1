CREATE OR REPLACE FUNCTION ledger_genesis(p_org uuid) RETURNS bytea LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT sha256(convert_to('gpuaas-ledger:' || p_org, 'UTF8')) $$;
