CREATE OR REPLACE FUNCTION node_standing_changed() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    -- In the order in which everybody locks them.
    PERFORM FROM node_capacity WHERE node_id = NEW.id ORDER BY node_id, kind, model FOR UPDATE;
    UPDATE node_capacity SET region = NEW.region, pool_id = NEW.pool_id, labels = NEW.labels,
        sku_eligibility = NEW.sku_eligibility, placeable = NEW.state = 'active' AND NEW.cordon_reason IS NULL
        WHERE node_id = NEW.id;
    IF NEW.serves <> OLD.serves THEN
        PERFORM node_capacity_refresh(ARRAY[NEW.id]);
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER nodes_standing
    AFTER UPDATE OF state, cordon_reason, region, pool_id, labels, sku_eligibility, serves ON nodes
    FOR EACH ROW EXECUTE FUNCTION node_standing_changed();
