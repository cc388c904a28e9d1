-- Of what was set aside, promotional credit is used first: what is left of it after `p_hold - p_remaining` were used.
CREATE OR REPLACE FUNCTION hold_promo_unused(p_hold bigint, p_remaining bigint, p_promo bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT greatest(p_promo - (p_hold - p_remaining), 0) $$;
