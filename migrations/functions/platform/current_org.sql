-- The tenant and the principal of the current transaction; null when unset.
CREATE OR REPLACE FUNCTION current_org() RETURNS uuid LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT nullif(current_setting('app.org_id', true), '')::uuid $$;
