//! Preferences.

use chrono::{DateTime, Utc};
use kernel::ids::UserId;
use pg::{Connection, Swap};
use serde_json::Value;
use uuid::Uuid;

use crate::model::preferences::Choices;

/// The choices and their version; the version of somebody who never chose is 0.
pub async fn get(conn: &mut Connection, user: UserId) -> Result<(Choices, i64), sqlx::Error> {
    let row =
        sqlx::query!("SELECT choices, version FROM notification_people WHERE person_id = $1", user.uuid(),)
            .fetch_optional(conn)
            .await?;
    Ok(row.map_or((Choices::default(), 0), |row| (Choices::read(&row.choices), row.version)))
}

/// The choices of many; who never chose is not among them.
pub async fn of_many(conn: &mut Connection, users: &[UserId]) -> Result<Vec<(UserId, Choices)>, sqlx::Error> {
    let users: Vec<Uuid> = users.iter().map(|user| user.uuid()).collect();
    let rows = sqlx::query!(
        "SELECT person_id, choices FROM notification_people WHERE person_id = ANY ($1)",
        &users,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (row.person_id.into(), Choices::read(&row.choices))).collect())
}

/// `expected` is the version on which the change was decided; 0 when there was none.
pub async fn set(
    conn: &mut Connection,
    user: UserId,
    choices: &Value,
    expected: i64,
    now: DateTime<Utc>,
) -> Result<Swap<i64>, sqlx::Error> {
    let version = sqlx::query_scalar!(
        "INSERT INTO notification_people AS p (person_id, choices, updated_at) VALUES ($1, $2, $4)
         ON CONFLICT (person_id) DO UPDATE SET choices = excluded.choices, version = p.version + 1,
             updated_at = excluded.updated_at WHERE p.version = $3
         RETURNING version",
        user.uuid(),
        choices,
        expected,
        now,
    )
    .fetch_optional(&mut *conn)
    .await?;
    let current = match version {
        Some(_) => None,
        None => Some(get(conn, user).await?.1),
    };
    Ok(Swap::from_update(version, current))
}
