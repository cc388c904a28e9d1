//! Sessions whose owner may not enter any more: the rule of the endpoint that gave their tokens, for all sessions at once.

use chrono::{DateTime, Utc};
use identity::api::{MemberRole, PlatformRole, ServiceAccountRole};
use kernel::Role;
use pg::Connection;

use crate::model::session::{END_CHANNEL, ENTERING};

/// Roles that hold [`ENTERING`], as their tables name them.
pub struct RolesThatEnter {
    platform: Vec<String>,
    org: Vec<String>,
    project: Vec<String>,
    service_account: Vec<String>,
}

fn names<T: Copy>(roles: &[T], role: impl Fn(T) -> Role, name: impl Fn(T) -> &'static str) -> Vec<String> {
    let enters = |named: &&T| role(**named).permissions().holds(ENTERING);
    roles.iter().filter(enters).map(|named| name(*named).to_owned()).collect()
}

impl RolesThatEnter {
    pub fn new() -> Self {
        Self {
            platform: names(&PlatformRole::ALL, PlatformRole::role, PlatformRole::name),
            org: names(&MemberRole::ALL, MemberRole::in_org, MemberRole::name),
            project: names(&MemberRole::ALL, MemberRole::in_project, MemberRole::name),
            service_account: names(
                &ServiceAccountRole::ALL,
                ServiceAccountRole::role,
                ServiceAccountRole::name,
            ),
        }
    }
}

/// Asks the gateways to end them, and notifies. Answers how many.
pub async fn end_ask(
    conn: &mut Connection,
    roles: &RolesThatEnter,
    now: DateTime<Utc>,
    limit: i64,
) -> Result<u64, sqlx::Error> {
    let asked = sqlx::query_scalar!(
        r#"WITH lost AS (
               SELECT s.id FROM terminal_sessions s
                   CROSS JOIN LATERAL (SELECT m.id, m.state, m.creator_kind, m.creator_id FROM allocations m
                       WHERE m.id = s.allocation_id LIMIT 1) a
                   JOIN organizations o ON o.id = s.org_id
               WHERE s.ended_at IS NULL AND s.end_asked_at IS NULL AND s.attachments > 0 AND s.expires_at > $1
                 AND NOT (a.state = 'active'
                     AND (a.creator_kind = s.principal_kind AND a.creator_id = s.principal_id
                         OR s.principal_kind = 'user' AND EXISTS (SELECT FROM allocation_access_grants g
                             WHERE g.allocation_id = a.id AND g.user_id = s.principal_id))
                     AND CASE s.principal_kind
                         WHEN 'user' THEN
                             (EXISTS (SELECT FROM platform_bindings b
                                 WHERE b.user_id = s.principal_id AND b.role = ANY ($2))
                              OR o.suspended_at IS NULL AND (
                                 EXISTS (SELECT FROM tenant_memberships t
                                     WHERE t.org_id = s.org_id AND t.user_id = s.principal_id AND t.role = ANY ($3))
                                 OR EXISTS (SELECT FROM project_memberships p
                                     WHERE p.project_id = s.project_id AND p.user_id = s.principal_id AND p.role = ANY ($4))))
                             AND EXISTS (SELECT FROM users u WHERE u.id = s.principal_id
                                 AND (SELECT l.disabled_at FROM local_accounts l
                                      WHERE l.id = CASE WHEN u.subject ~ '^acct_[0-9a-f]{32}$'
                                          THEN substr(u.subject, 6)::uuid END) IS NULL)
                         ELSE o.suspended_at IS NULL AND EXISTS (SELECT FROM service_accounts c
                             WHERE c.id = s.principal_id AND c.project_id = s.project_id AND c.disabled_at IS NULL
                               AND c.role = ANY ($5))
                         END)
               ORDER BY s.id LIMIT $6 FOR UPDATE OF s SKIP LOCKED
           ), asked AS (
               UPDATE terminal_sessions t SET end_asked_at = $1 FROM lost WHERE t.id = lost.id RETURNING t.id
           ), told AS (
               SELECT pg_notify($7, asked.id::text) FROM asked
           )
           SELECT count(*) AS "count!" FROM told"#,
        now,
        &roles.platform,
        &roles.org,
        &roles.project,
        &roles.service_account,
        limit,
        END_CHANNEL,
    )
    .fetch_one(conn)
    .await?;
    Ok(asked.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_only_reads_does_not_enter() {
        let roles = RolesThatEnter::new();
        assert_eq!(roles.platform, ["platform_admin"]);
        assert_eq!(roles.org, ["admin", "owner"]);
        assert_eq!(roles.project, ["member", "admin", "owner"]);
        assert_eq!(roles.service_account, ["launcher"]);
    }
}
