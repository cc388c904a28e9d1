CREATE OR REPLACE FUNCTION slots_changed() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT id, node_id, kind, model FROM changed EXCEPT SELECT id, node_id, kind, model FROM before) THEN
        PERFORM node_capacity_refresh(array_agg(DISTINCT node_id))
            FROM (SELECT node_id FROM changed UNION SELECT node_id FROM before) touched;
    -- What was reserved and is used now counts the same; nobody need wait for the node's row.
    ELSIF EXISTS (SELECT FROM changed c JOIN before b USING (id)
                  WHERE NOT (c.state IN ('reserved', 'in_use') AND b.state IN ('reserved', 'in_use'))) THEN
        PERFORM node_capacity_recount(array_agg(DISTINCT node_id), array_agg(DISTINCT kind), array_agg(DISTINCT model))
            FROM changed;
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER slots_updated AFTER UPDATE ON node_resource_slots REFERENCING NEW TABLE AS changed OLD TABLE AS before
    FOR EACH STATEMENT EXECUTE FUNCTION slots_changed();
