//! Which object storage the installation uses: all processes must use the same one.

use kernel::Failure;
use uuid::Uuid;

use crate::Db;

/// The id of the object storage that the installation uses. The first process that `found` one decides.
pub async fn object_storage_settle(db: &Db, found: Option<Uuid>) -> Result<Option<Uuid>, Failure> {
    let mut upkeep = db.upkeep("which object storage the installation uses").await?;
    let settled = sqlx::query_scalar!(
        "UPDATE installation SET object_storage_id = coalesce(object_storage_id, $1) RETURNING object_storage_id",
        found,
    );
    Ok(settled.fetch_one(upkeep.conn()).await?)
}
