CREATE OR REPLACE FUNCTION slots_came_or_went() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    PERFORM node_capacity_refresh(nodes) FROM
        (SELECT array_agg(DISTINCT node_id) AS nodes FROM changed HAVING count(*) > 0) touched;
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER slots_inserted AFTER INSERT ON node_resource_slots REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION slots_came_or_went();
CREATE OR REPLACE TRIGGER slots_deleted AFTER DELETE ON node_resource_slots REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION slots_came_or_went();
