-- What becomes due with so many seconds more of use (fewer, when they are negative), and what is carried to the next
-- time: a price is per hour, so every cost is a whole number of 3600ths of a minor unit. The only formula of a cost in
-- the database; `model/rating.rs` of billing has the same one, and a property test compares them. What bigint cannot
-- hold is an error in both. Returns a set, so that the planner puts it in the place of each call.
CREATE OR REPLACE FUNCTION usage_cost(p_carry integer, p_unit_price bigint, p_units integer, p_seconds bigint)
RETURNS TABLE (amount bigint, carry integer) LANGUAGE sql IMMUTABLE PARALLEL SAFE ROWS 1 AS $$
    SELECT u.parts / 3600 - (u.parts % 3600 < 0)::integer, ((u.parts % 3600 + 3600) % 3600)::integer
    FROM (SELECT p_unit_price * p_units * p_seconds + p_carry AS parts) AS u
$$;
