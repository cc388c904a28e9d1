-- Live allocations of one project have different names: an index over those with this flag. `capacity_reserve` sets it, for
-- the release before too; without it that release could not insert while the index is built. What it inserts before the new
-- function is in force has no flag; the next release sets it for all that are left, and drops it.
ALTER TABLE allocations ADD COLUMN unique_name boolean NOT NULL DEFAULT false;
