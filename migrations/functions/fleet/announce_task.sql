CREATE OR REPLACE FUNCTION announce_task() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('gpuaas_tasks', NEW.node_id::text);
    RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER node_tasks_announce AFTER INSERT ON node_tasks FOR EACH ROW EXECUTE FUNCTION announce_task();
CREATE OR REPLACE TRIGGER node_tasks_announce_again AFTER UPDATE OF state ON node_tasks FOR EACH ROW
    WHEN (NEW.state = 'queued') EXECUTE FUNCTION announce_task();
