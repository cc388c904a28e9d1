//! Row-level security: the second line of defence, tried without the first.

use identity::{
    model::{invitation::InvitationLimits, role::MemberRole},
    service::{
        invitations::{Invite, invitation_create},
        policies::{NewPolicy, Place, policy_set},
        service_accounts::{service_account_create, service_account_key_create},
    },
};
use kernel::{
    Permission, Role,
    ids::{OrgId, UserId},
    policy::{PolicyKey as _, keys},
    text::{Email, Name},
};
use pg::{Roles, Scope};
use uuid::Uuid;

use super::world::World;

/// An organization with a row in every tenant table.
async fn furnished(world: &World, slug: &str) -> (UserId, OrgId) {
    let owner = world.user(&format!("owner-of-{slug}")).await;
    let org = world.org(slug, owner).await.id;
    let project = world.project(owner, org, "work").await;
    let mut tx = world.write_in(owner, org, "test.furnish").await;
    let invite = Invite {
        email: Email::parse("guest@example.org").unwrap(),
        role: MemberRole::Member,
        invited_by: owner,
    };
    invitation_create(&mut tx, org, invite, InvitationLimits::default(), &[Role::OrgOwner]).await.unwrap();
    let account =
        service_account_create(&mut tx, org, project.id, Name::parse("bot").unwrap()).await.unwrap();
    let limit = keys::KEYS_PER_SERVICE_ACCOUNT.default_setting();
    service_account_key_create(&mut tx, (org, project.id), account.id, None, limit).await.unwrap();
    policy_set(
        &mut tx,
        Place::Org(org),
        "quota.gpus_per_org",
        NewPolicy::bound(&4.into()),
        None,
        &[Role::PlatformAdmin],
    )
    .await
    .unwrap();
    tx.commit(None).await.unwrap();
    allocated(world, owner, org, project.id.uuid()).await;
    charged(world, org, project.id.uuid()).await;
    (owner, org)
}

/// What other domains keep for a tenant, as a superuser writes it.
async fn allocated(world: &World, owner: UserId, org: OrgId, project: Uuid) {
    let sql = "WITH grouped AS (
             INSERT INTO allocation_groups VALUES (gen_random_uuid(), $1, $2, 'g', 1, $3, now()) RETURNING id
         ), made AS (
             INSERT INTO allocations (id, org_id, project_id, group_id, name, creator_kind, creator_id, sku, shape, region,
                 gpus, profile, price_unit, unit_price_minor, currency, isolation_model, node_id, slot_ids, username, uid,
                 ssh_host, ssh_port, work_order, state_changed_at, created_at, updated_at)
             SELECT gen_random_uuid(), $1, $2, id, 'a', 'user', $3, 's', 'gpu_slice', 'r', 1, '{}', 'gpu_hour', 1, 'USD',
                 'user-revoke', gen_random_uuid(), '{}', 'u', 20000, 'h', 22, '', now(), now(), now() FROM grouped
             RETURNING id
         ), told AS (
             INSERT INTO allocation_events (allocation_id, org_id, at, kind, name, actor_kind, correlation_id)
             SELECT id, $1, now(), 'state', 'request', 'user', gen_random_uuid() FROM made
         ), granted AS (
             INSERT INTO allocation_access_grants SELECT id, $3, $1, $3, now() FROM made
         ), ordered AS (
             INSERT INTO allocation_keys (allocation_id, public_key, org_id, ordered_version)
             SELECT id, 'ssh-ed25519 AAAA', $1, 1 FROM made
         )
         INSERT INTO capacity_holdings VALUES ($1, '1_org', $1, 1, 1)";
    let mut admin = world.test.conn(Roles::Admin).await;
    let done = sqlx::query(sql).bind(org.uuid()).bind(project).bind(owner.uuid()).execute(&mut admin).await;
    done.unwrap();
}

/// Money of every kind, through the functions that services use where there are some.
async fn charged(world: &World, org: OrgId, project: Uuid) {
    let sql = format!(
        "DO $$
         DECLARE
             o uuid := '{org}'; p uuid := '{project}'; a uuid := gen_random_uuid(); c uuid := gen_random_uuid();
             t uuid := gen_random_uuid(); y uuid := gen_random_uuid(); w uuid := gen_random_uuid();
         BEGIN
             PERFORM ledger_append(ROW(o, 'USD', now(), gen_random_uuid(), 'topup', o::text, 'paid', NULL, 'system', NULL, c)::new_posting,
                 ROW(ARRAY['prepaid', 'cash_stripe'], ARRAY[5000, -5000], ARRAY[NULL, NULL]::uuid[], ARRAY[NULL, NULL]::uuid[],
                 ARRAY[NULL, NULL]::uuid[], ARRAY[NULL, NULL]::uuid[], ARRAY[NULL, NULL]::timestamptz[],
                 ARRAY[NULL, NULL]::timestamptz[])::line_batch);
             PERFORM meters_hold(ROW(o, p, NULL, 's', 'gpu_hour', 1, 400, 'USD')::meter_terms, now(), 3600, gen_random_uuid(),
                 ROW('system', NULL, c)::write_origin, ARRAY[gen_random_uuid()], ARRAY[a]);
             PERFORM meter_open(a, now() - interval '10 minutes');
             PERFORM meter_pause(a, now(), gen_random_uuid(), ROW(NULL, 'sick', '{{}}')::pause_cause, now(), gen_random_uuid(), c);
             INSERT INTO billing_accounts VALUES (o, 'healthy', now());
             INSERT INTO budgets VALUES (p, o, 100, 80, 'notify', 1, now(), now());
             INSERT INTO budget_progress VALUES (p, o, '2026-01-01', 0, 0);
             INSERT INTO ledger_checkpoints SELECT o, '2026-01-01', 0, seq, hash, now(), 'key', '', '' FROM ledger_chains WHERE org_id = o;
             INSERT INTO payment_customers VALUES (o, 'simulated', 'cus', now());
             INSERT INTO topups (id, org_id, provider, amount_minor, currency, state, state_reason, next_attempt_at,
                     correlation_id, created_at, updated_at)
                 VALUES (t, o, 'simulated', 5000, 'USD', 'paid', '', now(), c, now(), now());
             INSERT INTO payments VALUES (y, o, t, 'simulated', y::text, 5000, 'USD', c, now(), now());
             INSERT INTO refunds (id, org_id, payment_id, amount_minor, currency, destination, source, reason, state, state_reason,
                     posting_id, next_attempt_at, correlation_id, created_at, updated_at)
                 VALUES (gen_random_uuid(), o, y, 1, 'USD', 'card', 'operator', '', 'pending', '', c, now(), c, now(), now());
             INSERT INTO disputes (id, org_id, payment_id, provider_dispute, amount_minor, currency, reason, state, posting_id,
                     created_at, updated_at)
                 VALUES (gen_random_uuid(), o, y, y::text, 1, 'USD', '', 'open', c, now(), now());
             INSERT INTO webhooks (id, org_id, name, url, event_types, state, secret, created_at, updated_at)
                 VALUES (w, o, 'w', 'https://example.org', '{{}}', 'active', '', now(), now());
             INSERT INTO deliveries (id, channel, state, event_id, event_type, org_id, webhook_id, content, next_attempt_at, queued_at,
                     created_at)
                 VALUES (gen_random_uuid(), 'webhook', 'queued', c, 'e', o, w, '', now(), now(), now());
         END $$",
        org = org.uuid(),
    );
    let mut admin = world.test.conn(Roles::Admin).await;
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut admin).await.unwrap();
}

/// Tenant tables with the column that names the organization. Months of a table are reached through it.
async fn tenant_tables(world: &World) -> Vec<(String, &'static str)> {
    let mut admin = world.test.conn(Roles::Admin).await;
    let names: Vec<String> = sqlx::query_scalar(
        "SELECT c.relname::text FROM pg_class c WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition
         AND c.relnamespace = 'public'::regnamespace
         AND obj_description(c.oid, 'pg_class') LIKE 'tenant:%' ORDER BY 1",
    )
    .fetch_all(&mut admin)
    .await
    .unwrap();
    let column = |name: &str| if name == "organizations" { "id" } else { "org_id" };
    names
        .into_iter()
        .map(|name| {
            let column = column(&name);
            (name, column)
        })
        .collect()
}

#[tokio::test]
async fn a_query_without_a_tenant_filter_sees_only_its_own_organization() {
    let world = World::new().await;
    let (alice, a) = furnished(&world, "a").await;
    let (bob, b) = furnished(&world, "b").await;
    let tables = tenant_tables(&world).await;
    assert!(tables.len() >= 9, "{tables:?}");
    for (user, org) in [(alice, a), (bob, b)] {
        for (table, column) in &tables {
            let sql = format!("SELECT DISTINCT {column} FROM {table} WHERE {column} IS NOT NULL");
            let mut read = world.read_in(user, org).await;
            let seen: Vec<Uuid> =
                sqlx::query_scalar(sqlx::AssertSqlSafe(sql.clone())).fetch_all(read.conn()).await.unwrap();
            assert_eq!(seen, [org.uuid()], "{sql}");
        }
        let mut read = world.read_in(user, org).await;
        let people: Vec<Uuid> =
            sqlx::query_scalar("SELECT id FROM users").fetch_all(read.conn()).await.unwrap();
        assert_eq!(people, [user.uuid()], "only members of the organization");
    }
}

#[tokio::test]
async fn an_update_without_a_tenant_filter_changes_only_its_own_organization() {
    let world = World::new().await;
    let (alice, a) = furnished(&world, "a").await;
    let (_, b) = furnished(&world, "b").await;
    let mut tx = world.write_in(alice, a, "test.careless").await;
    sqlx::query("UPDATE projects SET name = 'mine now'").execute(tx.conn()).await.unwrap();
    sqlx::query("DELETE FROM policy_values").execute(tx.conn()).await.unwrap();
    tx.commit(None).await.unwrap();
    let taken = "SELECT count(*) FROM projects WHERE org_id = $1 AND name = 'mine now'";
    assert_eq!(world.count(taken, a.uuid()).await, 2);
    assert_eq!(world.count(taken, b.uuid()).await, 0);
    assert_eq!(world.count("SELECT count(*) FROM policy_values WHERE org_id = $1", b.uuid()).await, 1);
}

#[tokio::test]
async fn a_row_cannot_be_put_into_another_organization() {
    let world = World::new().await;
    let (alice, a) = furnished(&world, "a").await;
    let (_, b) = furnished(&world, "b").await;
    for sql in [
        "INSERT INTO tenant_memberships (org_id, user_id, role, created_at, updated_at) VALUES ($1, $2, 'owner', now(), now())",
        "UPDATE projects SET org_id = $1 WHERE org_id <> $2",
    ] {
        let mut tx = world.write_in(alice, a, "test.intrude").await;
        let refused = sqlx::query(sql).bind(b.uuid()).bind(alice.uuid()).execute(tx.conn()).await;
        assert!(refused.is_err_and(|e| e.to_string().contains("row-level security")), "{sql}");
    }
}

#[tokio::test]
async fn a_person_without_an_organization_sees_themselves_and_their_own_places() {
    let world = World::new().await;
    let (alice, a) = furnished(&world, "a").await;
    furnished(&world, "b").await;
    let permit = world.permit(alice, Role::Person, Scope::Person, Permission::SelfRead);
    let mut read = world.db().read(&permit).await.unwrap();
    for (sql, expected) in [
        ("SELECT id FROM users", vec![alice.uuid()]),
        ("SELECT id FROM organizations", vec![a.uuid()]),
        ("SELECT org_id FROM tenant_memberships", vec![a.uuid()]),
        ("SELECT id FROM projects", vec![]),
        ("SELECT id FROM invitations", vec![]),
        ("SELECT id FROM service_account_keys", vec![]),
        ("SELECT id FROM audit_logs", vec![]),
    ] {
        let seen: Vec<Uuid> = sqlx::query_scalar(sql).fetch_all(read.conn()).await.unwrap();
        assert_eq!(seen, expected, "{sql}");
    }
}
