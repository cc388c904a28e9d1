-- Those of the nodes that are made of software. Requests may ask: it says nothing that the catalog hides.
CREATE OR REPLACE FUNCTION fleet_simulated(p_nodes uuid[]) RETURNS SETOF uuid
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT n.id FROM nodes n WHERE n.id = ANY (p_nodes) AND n.simulated
$$;
REVOKE ALL ON FUNCTION fleet_simulated FROM PUBLIC;
GRANT EXECUTE ON FUNCTION fleet_simulated TO gpuaas_app, gpuaas_system;
