//! The statements of one launch, for pgbench, and the requests that make them, for wrk.

use sqlx::PgConnection;
use uuid::Uuid;

use super::{KIND, MODEL, SKU, rows::OPEN};

/// A project and the organization that it belongs to.
pub struct Home {
    pub org: Uuid,
    pub project: Uuid,
    /// As paths name it.
    pub project_id: String,
}

/// What a real launch wrote: the arguments of the statements are of the same sizes.
#[derive(sqlx::FromRow)]
pub struct Sample {
    profile: String,
    order_bytes: i32,
    body_bytes: i32,
    payload: String,
    traceparent: Option<String>,
    role: String,
}

impl Sample {
    /// Of the newest allocation.
    pub async fn of_newest(db: &mut PgConnection) -> anyhow::Result<Self> {
        let sql = "SELECT a.profile::text, octet_length(a.work_order) AS order_bytes, octet_length(i.body) AS body_bytes,
                o.payload::text, o.traceparent, l.actor_role AS role
            FROM (SELECT * FROM allocations ORDER BY id DESC LIMIT 1) a,
                (SELECT * FROM idempotency_records WHERE endpoint = 'allocation_create' ORDER BY created_at DESC LIMIT 1) i,
                (SELECT * FROM outbox_events WHERE event_type = 'provisioning.requested' ORDER BY position DESC LIMIT 1) o,
                (SELECT * FROM audit_logs WHERE action = 'allocation.create' ORDER BY at DESC LIMIT 1) l";
        Ok(sqlx::query_as(sql).fetch_one(db).await?)
    }
}

/// The settings by which the database knows whose rows these are. Connections keep them while the tenant stays.
pub fn settings(user: Uuid, homes: &[Home]) -> String {
    match homes {
        [home] => format!("-c app.org_id={} -c app.principal_id={user}", home.org),
        _ => String::new(),
    }
}

/// In the order in which a launch sends them.
pub fn sql(user: Uuid, homes: &[Home], sample: &Sample) -> String {
    let of = |pick: fn(&Home) -> Uuid| match homes {
        [home] => format!("'{}'::uuid", pick(home)),
        _ => {
            let list: Vec<String> = homes.iter().map(|home| format!("'{}'", pick(home))).collect();
            format!("(ARRAY[{}]::uuid[])[:o]", list.join(", "))
        }
    };
    let (org, project) = (of(|home| home.org), of(|home| home.project));
    let carry = match homes {
        [_] => String::new(),
        _ => format!(
            "SELECT set_config('app.org_id', {org}::text, false), set_config('app.principal_id', '{user}', false);\n"
        ),
    };
    let Sample { profile, order_bytes, body_bytes, payload, traceparent, role } = sample;
    let trace = traceparent.as_ref().map_or("NULL".to_owned(), |text| format!("'{text}'"));
    let count = homes.len();
    // Ids go up with time, as ours do.
    format!(
        "\\set n random(1, 4000000000000000000)
\\set o random(1, {count})
{carry}BEGIN READ WRITE;
SELECT claimed, same_request, status, body FROM idempotency_claim('{user}', 'allocation_create', :n::text, sha256('x'), now());
SELECT user_id, public_key FROM member_ssh_keys({project}, ARRAY['{user}'::uuid]);
SELECT b.blocked, b.cap_left, c.currency, p.prepaid_after, p.held_after, p.promo_after, p.disputed_after, least(u.burn + s.burn, 9223372036854775807::bigint)::bigint, u.unposted, u.carry FROM (SELECT budget_blocks({org}, {project}, now()) AS blocked, (SELECT spend_cap_left(s.org_id, s.service_account_id, now()) FROM spend_caps s WHERE s.service_account_id = '{user}' AND s.org_id = {org}) AS cap_left) AS b LEFT JOIN ledger_chains c ON c.org_id = {org} LEFT JOIN LATERAL ( SELECT l.seq, l.prepaid_after, l.held_after, l.promo_after, l.disputed_after FROM ledger_postings l WHERE l.org_id = c.org_id AND l.seq >= c.seq AND l.posted_at = c.posted_at ORDER BY l.seq LIMIT 1 ) AS p ON p.seq = c.seq CROSS JOIN LATERAL ( SELECT coalesce(sum(hour.amount) FILTER (WHERE m.state = 'open'), 0) AS burn, least(coalesce(sum(used.amount), 0), 9223372036854775807::bigint)::bigint AS unposted, coalesce(sum(used.carry), 0)::bigint AS carry FROM meters m, usage_cost(0, m.unit_price_minor, m.units, 3600) AS hour, usage_cost(m.carry, m.unit_price_minor, m.units, least( greatest(floor(extract(epoch FROM least(now(), m.closed_at) - m.accrued_until)), 0)::bigint, (9223372036854775807::bigint - 3599) / greatest(m.unit_price_minor, 1) / greatest(m.units, 1))) AS used WHERE m.org_id = {org} AND m.state IN ('open', 'closed') ) AS u CROSS JOIN LATERAL ( SELECT coalesce(sum(hour.amount), 0) AS burn FROM meters m, usage_cost(0, m.unit_price_minor, m.units, 3600) AS hour WHERE m.org_id = {org} AND m.state = 'held' ) AS s;
SELECT (array_agg(node_id))[1] AS node, (array_agg(slot_id))[1] AS slot, max(ssh_host) AS host, max(ssh_port) AS port, lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0') || substr(md5(:n::text), 1, 20) AS id FROM fleet_candidates(ROW('{KIND}', '{MODEL}', '{OPEN}', '{SKU}', NULL, '{{}}', 1, false)::slot_request, 1, false, 1, false) \\gset
SELECT saga_start(ROW(gen_random_uuid(), 'provision_slice', 1, 'alloc_' || :id::text, {org}, jsonb_build_object('allocation_id', 'alloc_' || :id::text), now() + '7 days', gen_random_uuid(), {trace})::new_saga_run, now());
SELECT capacity_reserve(now(), ROW({org}, {project}, 'user', '{user}', NULL, NULL, '{SKU}', 'gpu_slice', '{OPEN}', 1, '{profile}', 'gpu_hour', 450, 'USD', 'user-revoke')::launch_terms, ROW(1000000000, 1000000000, 1000000)::reserve_limits, ROW(ARRAY[:id::uuid], ARRAY['{SKU}-' || right(:id::text, 8)], ARRAY[:node::uuid], ARRAY['gpu20000'], ARRAY[20000], ARRAY[:host::text], ARRAY[:port::integer], ARRAY[decode(repeat('5a', {order_bytes}), 'hex')])::allocation_batch, ROW(ARRAY[:id::uuid], ARRAY[:node::uuid], ARRAY[:slot::uuid])::claim_batch, ROW('user', '{user}', gen_random_uuid())::write_origin);
SELECT answer, coalesce(available, 0), needed FROM meters_hold(ROW({org}, {project}, '{user}', '{SKU}', 'gpu_hour', 1, 450, 'USD')::meter_terms, now(), 3600, gen_random_uuid(), ROW('user', '{user}', gen_random_uuid())::write_origin, ARRAY[:id::uuid], ARRAY[:id::uuid]);
SELECT write_finish(ROW(gen_random_uuid(), {org}, now(), 'user', '{user}', '{role}', NULL, 'allocation.create', 'allocation', 'alloc_' || :id::text, {project}, NULL, NULL, gen_random_uuid(), '127.0.0.1', NULL, sha256('y'), NULL)::audit_entry, ROW(ARRAY[gen_random_uuid()], ARRAY['PROVISIONING'], ARRAY['provisioning.requested'], ARRAY[1::smallint], ARRAY[{org}], ARRAY[{project}], ARRAY['{payload}'::jsonb])::event_batch, {trace}, ROW('{user}', 'allocation_create', :n::text, 202::smallint, convert_to(repeat('x', {body_bytes}), 'UTF8'))::stored_answer, ARRAY[]::text[]);
COMMIT;
"
    )
}

pub fn lua(homes: &[Home], token: &str) -> String {
    let paths: Vec<String> =
        homes.iter().map(|home| format!("'/api/v1/projects/{}/allocations'", home.project_id)).collect();
    format!(
        "local paths = {{ {} }}
math.randomseed(os.time() * 1000 + tonumber(tostring({{}}):match('0x(%x+)'), 16) % 100000)
local run = tostring(math.random(1, 2000000000))
local n = 0
request = function()
  n = n + 1
  local key = math.random(1, 2000000000) .. '-' .. run .. '-' .. n
  local headers = {{ ['authorization'] = 'Bearer {token}', ['content-type'] = 'application/json', ['x-idempotency-key'] = key }}
  return wrk.format('POST', paths[n % #paths + 1], headers, '{{\"sku\":\"{SKU}\",\"gpus\":1,\"region\":\"{OPEN}\"}}')
end
",
        paths.join(", ")
    )
}
