-- The same for an attempt of a step. A migration of its own: workers lock these tables in another order.
ALTER TABLE saga_steps ADD COLUMN failure_code text;
