-- Whether a definer's function was called for a tenant (or a person): then it keeps to current_org().
CREATE OR REPLACE FUNCTION called_by_app() RETURNS boolean LANGUAGE sql STABLE
    AS $$ SELECT coalesce(nullif(current_setting('role', true), 'none'), session_user::text) = 'gpuaas_app' $$;
