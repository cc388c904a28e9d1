-- Everything that must be written with an effect, in one round trip: audit, events, stored response, and
-- the notifications that drop caches and wake the relay when the transaction commits.
CREATE OR REPLACE FUNCTION write_finish(
    p_entry audit_entry, p_events event_batch, p_traceparent text, p_answer stored_answer, p_invalidate text[]
) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_seq bigint;
    v_key text;
BEGIN
    p_entry.result := 'allowed';
    v_seq := audit_append(p_entry);
    IF cardinality(p_events.ids) > 0 THEN
        INSERT INTO outbox_events
            (event_id, stream, event_type, version, occurred_at, correlation_id, traceparent, org_id, project_id, payload)
        SELECT id, stream, type, ver, p_entry.at, p_entry.correlation_id, p_traceparent, org, project, payload
            FROM unnest(p_events.ids, p_events.streams, p_events.types, p_events.versions, p_events.orgs,
                p_events.projects, p_events.payloads)
                AS e (id, stream, type, ver, org, project, payload);
        PERFORM pg_notify('gpuaas_outbox', '');
    END IF;
    IF p_answer.key IS NOT NULL THEN
        UPDATE idempotency_records SET status = p_answer.status, body = p_answer.body
            WHERE principal_id = p_answer.principal_id AND endpoint = p_answer.endpoint AND key = p_answer.key;
    END IF;
    FOREACH v_key IN ARRAY p_invalidate LOOP
        PERFORM pg_notify('gpuaas_invalidate', v_key);
    END LOOP;
    RETURN v_seq;
END $$;
REVOKE ALL ON FUNCTION write_finish(audit_entry, event_batch, text, stored_answer, text[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION write_finish(audit_entry, event_batch, text, stored_answer, text[]) TO gpuaas_app, gpuaas_system;

-- For the release before, which calls it; drop it with the next.
CREATE OR REPLACE FUNCTION write_finish(
    p_id uuid, p_org uuid, p_at timestamptz, p_actor_kind text, p_actor_id uuid, p_actor_role text,
    p_on_behalf_of uuid, p_action text, p_target_kind text, p_target_id text, p_project uuid,
    p_correlation uuid, p_source_ip text, p_before bytea, p_after bytea,
    e_ids uuid[], e_streams text[], e_types text[], e_versions smallint[], e_orgs uuid[], e_projects uuid[],
    e_payloads jsonb[], p_traceparent text,
    i_principal uuid, i_endpoint text, i_key text, i_status smallint, i_body bytea,
    p_invalidate text[]
) RETURNS bigint
LANGUAGE sql AS $$
    SELECT write_finish(ROW(p_id, p_org, p_at, p_actor_kind, p_actor_id, p_actor_role, p_on_behalf_of, p_action,
        p_target_kind, p_target_id, p_project, NULL, NULL, p_correlation, p_source_ip, p_before, p_after, NULL)::audit_entry,
        ROW(e_ids, e_streams, e_types, e_versions, e_orgs, e_projects, e_payloads)::event_batch, p_traceparent,
        ROW(i_principal, i_endpoint, i_key, i_status, i_body)::stored_answer, p_invalidate)
$$;
