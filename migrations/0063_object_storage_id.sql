-- Which object storage the installation uses: the content of an object in it. A process that finds another one does not share
-- the storage with the others, and does not start.
ALTER TABLE installation ADD COLUMN object_storage_id uuid;
