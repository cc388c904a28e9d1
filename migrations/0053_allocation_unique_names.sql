-- Live allocations of one project have different names: an index over those with this flag. `capacity_reserve` sets it, for
-- the release before too; without it that release could not insert while the index is built.
ALTER TABLE allocations ADD COLUMN unique_name boolean NOT NULL DEFAULT false;
