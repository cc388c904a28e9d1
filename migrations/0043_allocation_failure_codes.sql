-- The same for an allocation.
ALTER TABLE allocations ADD COLUMN failure_code text;
