//! Policy values by scope.

use chrono::{DateTime, Utc};
use kernel::{
    Failure, Problem,
    ids::{OrgId, ProjectId, UserId},
};
use pg::{Connection, Swap};
use serde_json::Value;
use uuid::Uuid;

use crate::model::policy::{PolicyAuthority, PolicyScope, StoredValue};

/// Where a value is stored. The scope follows from which ids are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Global,
    Org(OrgId),
    Project(OrgId, ProjectId),
    User(OrgId, UserId),
}

impl Place {
    pub const fn scope(self) -> PolicyScope {
        match self {
            Self::Global => PolicyScope::Global,
            Self::Org(_) => PolicyScope::Org,
            Self::Project(..) => PolicyScope::Project,
            Self::User(..) => PolicyScope::User,
        }
    }

    pub fn org(self) -> Option<OrgId> {
        match self {
            Self::Global => None,
            Self::Org(org) | Self::Project(org, _) | Self::User(org, _) => Some(org),
        }
    }

    fn ids(self) -> (Option<Uuid>, Option<Uuid>, Option<Uuid>) {
        let org = self.org().map(OrgId::uuid);
        match self {
            Self::Global | Self::Org(_) => (org, None, None),
            Self::Project(_, project) => (org, Some(project.uuid()), None),
            Self::User(_, user) => (org, None, Some(user.uuid())),
        }
    }
}

/// A stored value of any key, as the cache keeps it.
#[derive(Clone, Debug)]
pub struct Entry {
    pub key: String,
    pub project: Option<ProjectId>,
    pub user: Option<UserId>,
    pub stored: StoredValue,
}

/// The scope and the authority of a row. Every request asks for policies, so a row of a newer release with a name that
/// this one does not know is left out, and does not fail all of them.
fn known_names(key: &str, scope: &str, set_by: &str) -> Option<(PolicyScope, PolicyAuthority)> {
    let names = scope.parse().ok().zip(set_by.parse().ok());
    if names.is_none() {
        tracing::warn!(key, scope, set_by, "a policy value of another release is left out");
    }
    names
}

/// Everything that can matter in `org`: its own values at every scope, and the global ones.
pub async fn all_in_org(conn: &mut Connection, org: Option<OrgId>) -> Result<Vec<Entry>, sqlx::Error> {
    let rows = sqlx::query!(
        "SELECT scope, key, value, version, set_by, is_default, project_id, user_id FROM policy_values
         WHERE org_id IS NULL OR org_id = $1",
        org.map(OrgId::uuid),
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .filter_map(|row| {
            let (scope, set_by) = known_names(&row.key, &row.scope, &row.set_by)?;
            let (value, version, is_default) = (row.value, row.version, row.is_default);
            let stored = StoredValue { scope, value, version, set_by, is_default };
            let (project, user) = (row.project_id.map(ProjectId::from), row.user_id.map(UserId::from));
            Some(Entry { key: row.key, project, user, stored })
        })
        .collect())
}

/// The values that count in `place`, of one key or of all.
pub async fn values_in(
    conn: &mut Connection,
    place: Place,
    key: Option<&str>,
) -> Result<Vec<(String, StoredValue)>, sqlx::Error> {
    let (org, project, user) = place.ids();
    let rows = sqlx::query!(
        "SELECT scope, key, value, version, set_by, is_default FROM policy_values
         WHERE (org_id IS NULL OR org_id = $1)
           AND (project_id IS NULL OR project_id = $2) AND (user_id IS NULL OR user_id = $3)
           AND ($4::text IS NULL OR key = $4)",
        org,
        project,
        user,
        key,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .filter_map(|row| {
            let (scope, set_by) = known_names(&row.key, &row.scope, &row.set_by)?;
            let (value, version, is_default) = (row.value, row.version, row.is_default);
            Some((row.key, StoredValue { scope, value, version, set_by, is_default }))
        })
        .collect())
}

pub struct NewValue<'a> {
    pub id: Uuid,
    pub place: Place,
    pub key: &'a str,
    pub value: &'a Value,
    pub set_by: PolicyAuthority,
    pub is_default: bool,
    pub updated_by: Uuid,
    pub now: DateTime<Utc>,
}

/// Sets a value; with `if_match` only when the stored one has that version.
pub async fn set(
    conn: &mut Connection,
    new: &NewValue<'_>,
    if_match: Option<i64>,
) -> Result<Swap<i64>, Failure> {
    let (org, project, user) = new.place.ids();
    let Some(expected) = if_match else {
        let version = sqlx::query_scalar!(
            "INSERT INTO policy_values (id, scope, org_id, project_id, user_id, key, value, updated_by, created_at,
                 updated_at, set_by, is_default)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9, $10, $11)
             ON CONFLICT (org_id, project_id, user_id, key) DO UPDATE SET value = excluded.value,
                 set_by = excluded.set_by, is_default = excluded.is_default, updated_by = excluded.updated_by, version = policy_values.version + 1, updated_at = excluded.updated_at
             RETURNING version",
            new.id,
            new.place.scope().name(),
            org,
            project,
            user,
            new.key,
            new.value,
            new.updated_by,
            new.now,
            new.set_by.name(),
            new.is_default,
        )
        .fetch_one(conn)
        .await
        .map_err(|error| {
            super::violated(
                error,
                &[
                    ("policy_values_org_id_user_id_fkey", || Problem::not_found("member")),
                    ("policy_values_org_id_project_id_fkey", || Problem::not_found("project")),
                    ("policy_values_org_id_fkey", || Problem::not_found("organization")),
                ],
            )
        })?;
        return Ok(Swap::Updated(version));
    };
    let version = sqlx::query_scalar!(
        "UPDATE policy_values SET value = $5, updated_by = $6, version = version + 1, updated_at = $7,
             set_by = $9, is_default = $10
         WHERE org_id IS NOT DISTINCT FROM $1 AND project_id IS NOT DISTINCT FROM $2
           AND user_id IS NOT DISTINCT FROM $3 AND key = $4 AND version = $8
         RETURNING version",
        org,
        project,
        user,
        new.key,
        new.value,
        new.updated_by,
        new.now,
        expected,
        new.set_by.name(),
        new.is_default,
    )
    .fetch_optional(&mut *conn)
    .await?;
    let current = match version {
        Some(_) => None,
        None => current_version(conn, new.place, new.key).await?,
    };
    Ok(Swap::from_update(version, current))
}

/// Removes a value and returns it; nothing when there was none.
pub async fn remove(
    conn: &mut Connection,
    place: Place,
    key: &str,
    if_match: Option<i64>,
) -> Result<Swap<Value>, sqlx::Error> {
    let (org, project, user) = place.ids();
    let removed = sqlx::query_scalar!(
        "DELETE FROM policy_values
         WHERE org_id IS NOT DISTINCT FROM $1 AND project_id IS NOT DISTINCT FROM $2
           AND user_id IS NOT DISTINCT FROM $3 AND key = $4 AND version = coalesce($5, version)
         RETURNING value",
        org,
        project,
        user,
        key,
        if_match,
    )
    .fetch_optional(&mut *conn)
    .await?;
    let current = match removed {
        Some(_) => None,
        None => current_version(conn, place, key).await?,
    };
    Ok(Swap::from_update(removed, current))
}

async fn current_version(conn: &mut Connection, place: Place, key: &str) -> Result<Option<i64>, sqlx::Error> {
    let (org, project, user) = place.ids();
    sqlx::query_scalar!(
        "SELECT version FROM policy_values
         WHERE org_id IS NOT DISTINCT FROM $1 AND project_id IS NOT DISTINCT FROM $2
           AND user_id IS NOT DISTINCT FROM $3 AND key = $4",
        org,
        project,
        user,
        key,
    )
    .fetch_optional(conn)
    .await
}
