-- The same for what its node serves: a whole machine needs no fabric for each of its GPUs.
CREATE OR REPLACE FUNCTION slot_is_ready(s node_resource_slots, p_serves text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE p_serves WHEN 'any' THEN slot_is_free(s)
        ELSE s.state = 'available' AND s.health = 'healthy' AND s.blockers = '[]' END
$$;
