-- A webhook that somebody listens to through the API (`gpuaas webhooks listen`): its messages wait until they are
-- fetched, and it is deleted when nobody has listened until then. The release before treats it as any other webhook,
-- whose URL leads nowhere.
ALTER TABLE webhooks ADD COLUMN listens_until timestamptz;

-- Whoever looks after the queues deletes it.
GRANT DELETE ON webhooks TO gpuaas_system;
