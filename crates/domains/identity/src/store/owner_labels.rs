//! Names of organizations, projects and whoever made something there.

use pg::Connection;
use uuid::Uuid;

use crate::model::owner_label::OwnerLabel;

/// One row for each place of the lists, which have the same length.
pub async fn list(
    conn: &mut Connection,
    orgs: &[Uuid],
    projects: &[Uuid],
    creators: &[Uuid],
) -> Result<Vec<OwnerLabel>, sqlx::Error> {
    sqlx::query_as!(
        OwnerLabel,
        r#"SELECT coalesce(o.name, '') AS "org_name!", coalesce(p.name, '') AS "project_name!",
               coalesce(u.email, u.name, s.name, '') AS "owner!"
           FROM unnest($1::uuid[], $2::uuid[], $3::uuid[]) WITH ORDINALITY AS k (org, project, creator, place)
           LEFT JOIN organizations o ON o.id = k.org
           LEFT JOIN projects p ON p.id = k.project
           LEFT JOIN users u ON u.id = k.creator
           LEFT JOIN service_accounts s ON s.id = k.creator
           ORDER BY k.place"#,
        orgs,
        projects,
        creators,
    )
    .fetch_all(conn)
    .await
}
