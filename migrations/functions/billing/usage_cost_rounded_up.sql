-- What use costs when a part of a minor unit counts as a whole one: what is set aside or quoted is never too little.
CREATE OR REPLACE FUNCTION usage_cost_rounded_up(p_unit_price bigint, p_units integer, p_seconds bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT amount FROM usage_cost(3599, p_unit_price, p_units, p_seconds) $$;
