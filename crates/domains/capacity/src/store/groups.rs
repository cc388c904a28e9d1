//! Groups of allocations. They are made by `reserve` and never changed.

use kernel::{
    Failure, PageQuery,
    ids::{GroupId, ProjectId},
    principal::{PrincipalId, PrincipalKind},
};
use lifecycle::UnknownName;
use pg::Connection;
use uuid::Uuid;

use crate::model::{
    allocation::AllocationState,
    group::{Group, GroupState},
};

fn state(names: &[String]) -> Result<GroupState, UnknownName> {
    let states: Vec<AllocationState> = names.iter().map(|name| name.parse()).collect::<Result<_, _>>()?;
    Ok(GroupState::from_members(&states))
}

/// The members were all made by whoever made the group.
fn created_by(kind: Option<&str>, id: Uuid) -> Result<PrincipalId, UnknownName> {
    let kind = kind.map(str::parse).transpose()?.unwrap_or(PrincipalKind::User);
    Ok(PrincipalId::of_kind(kind, id))
}

pub async fn get(conn: &mut Connection, project: ProjectId, id: GroupId) -> Result<Option<Group>, Failure> {
    let row = sqlx::query!(
        r#"SELECT id, name, members, created_by, created_at,
               ARRAY (SELECT state FROM allocations a WHERE a.group_id = g.id) AS "states!",
               (SELECT creator_kind FROM allocations a WHERE a.group_id = g.id LIMIT 1) AS creator_kind
           FROM allocation_groups g WHERE id = $1 AND project_id = $2"#,
        id.uuid(),
        project.uuid(),
    )
    .fetch_optional(conn)
    .await?;
    row.map(|row| {
        Ok(Group {
            id: row.id.into(),
            project_id: project,
            name: row.name,
            members: row.members,
            state: state(&row.states)?,
            created_by: created_by(row.creator_kind.as_deref(), row.created_by)?,
            created_at: row.created_at,
        })
    })
    .transpose()
}

pub async fn list(
    conn: &mut Connection,
    project: ProjectId,
    page: &PageQuery,
) -> Result<Vec<Group>, Failure> {
    let rows = sqlx::query!(
        r#"SELECT id, name, members, created_by, created_at,
               ARRAY (SELECT state FROM allocations a WHERE a.group_id = g.id) AS "states!",
               (SELECT creator_kind FROM allocations a WHERE a.group_id = g.id LIMIT 1) AS creator_kind
           FROM allocation_groups g WHERE project_id = $1 AND id > $2 ORDER BY id LIMIT $3"#,
        project.uuid(),
        page.after(),
        page.limit(),
    )
    .fetch_all(conn)
    .await?;
    let groups = rows.into_iter().map(|row| {
        Ok(Group {
            id: row.id.into(),
            project_id: project,
            name: row.name,
            members: row.members,
            state: state(&row.states)?,
            created_by: created_by(row.creator_kind.as_deref(), row.created_by)?,
            created_at: row.created_at,
        })
    });
    groups.collect()
}
