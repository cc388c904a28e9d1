CREATE OR REPLACE FUNCTION current_principal() RETURNS uuid LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT nullif(current_setting('app.principal_id', true), '')::uuid $$;
