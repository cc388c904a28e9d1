//! Groups of allocations. They are made by `reserve` and never changed.

use kernel::{
    Failure, PageQuery,
    ids::{GroupId, ProjectId},
};
use pg::Connection;

use crate::model::{
    allocation::AllocationState,
    group::{Group, GroupState},
};

fn state(names: &[String]) -> GroupState {
    // The table of states is the same in the database; an unknown one counts as not over.
    let states: Vec<_> =
        names.iter().map(|name| AllocationState::parse(name).unwrap_or(AllocationState::Releasing)).collect();
    GroupState::of(&states)
}

pub async fn get(conn: &mut Connection, project: ProjectId, id: GroupId) -> Result<Option<Group>, Failure> {
    let row = sqlx::query!(
        r#"SELECT id, name, members, created_by, created_at,
               ARRAY (SELECT state FROM allocations a WHERE a.group_id = g.id) AS "states!"
           FROM allocation_groups g WHERE id = $1 AND project_id = $2"#,
        id.uuid(),
        project.uuid(),
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| Group {
        id: row.id.into(),
        project_id: project,
        name: row.name,
        members: row.members,
        state: state(&row.states),
        created_by: row.created_by.into(),
        created_at: row.created_at,
    }))
}

pub async fn list(
    conn: &mut Connection,
    project: ProjectId,
    page: &PageQuery,
) -> Result<Vec<Group>, Failure> {
    let rows = sqlx::query!(
        r#"SELECT id, name, members, created_by, created_at,
               ARRAY (SELECT state FROM allocations a WHERE a.group_id = g.id) AS "states!"
           FROM allocation_groups g WHERE project_id = $1 AND id > $2 ORDER BY id LIMIT $3"#,
        project.uuid(),
        page.after(),
        page.limit(),
    )
    .fetch_all(conn)
    .await?;
    let groups = rows.into_iter().map(|row| Group {
        id: row.id.into(),
        project_id: project,
        name: row.name,
        members: row.members,
        state: state(&row.states),
        created_by: row.created_by.into(),
        created_at: row.created_at,
    });
    Ok(groups.collect())
}
