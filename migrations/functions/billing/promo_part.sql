-- Promotional credit is used before money: how much of `p_amount` the credit of `p_promo` pays. The only place of that
-- rule; what is held, charged and released asks here.
CREATE OR REPLACE FUNCTION promo_part(p_promo bigint, p_amount bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT greatest(least(p_promo, p_amount), 0) $$;
