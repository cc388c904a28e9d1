-- What is left of the promotional credit that was set aside after `p_hold - p_remaining` were used.
CREATE OR REPLACE FUNCTION hold_promo_unused(p_hold bigint, p_remaining bigint, p_promo bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT p_promo - promo_part(p_promo, p_hold - p_remaining) $$;
