//! One's own SSH public keys.

use kernel::{
    Failure, Page, PageQuery,
    ids::{ProjectId, SshKeyId, UserId},
    policy::Setting,
    text::Name,
};
use pg::{Connection, ReadTx, WriteTx};
use uuid::Uuid;

use super::{created, found, removed};
use crate::{
    model::{
        events::SshKeyDeleted,
        ssh_key::{self, SshKey},
    },
    store,
};

pub async fn ssh_key_create(
    tx: &mut WriteTx,
    user: UserId,
    name: Name,
    public_key: &str,
    limit: Setting,
) -> Result<SshKey, Failure> {
    let (now, id) = (tx.db().ambient().now(), tx.db().ambient().id::<SshKeyId>());
    let checked = ssh_key::check(public_key)?;
    ssh_key::another_key(store::ssh_keys::lock_count(tx.conn(), user).await?, limit)?;
    let key = store::ssh_keys::insert(tx.conn(), user, id, name.as_str(), &checked, now).await?;
    created(tx, "ssh_key", id, &key)?;
    Ok(key)
}

pub async fn ssh_key_get(tx: &mut ReadTx, user: UserId, id: SshKeyId) -> Result<SshKey, Failure> {
    Ok(found(store::ssh_keys::get(tx.conn(), user, id).await?, "ssh_key")?)
}

pub async fn ssh_key_list(tx: &mut ReadTx, user: UserId, page: &PageQuery) -> Result<Page<SshKey>, Failure> {
    Ok(page.page(store::ssh_keys::list(tx.conn(), user, page).await?, |key| key.id.uuid()))
}

/// The public keys of those of `principals` who can enter the project: its people, and its own service accounts. Of anybody
/// else nothing.
pub async fn member_ssh_keys(
    conn: &mut Connection,
    project: ProjectId,
    principals: &[Uuid],
) -> Result<Vec<(Uuid, String)>, Failure> {
    Ok(store::ssh_keys::of_members(conn, project, principals).await?)
}

pub async fn ssh_key_delete(tx: &mut WriteTx, user: UserId, id: SshKeyId) -> Result<(), Failure> {
    let key = found(store::ssh_keys::delete(tx.conn(), user, id).await?, "ssh_key")?;
    tx.emit(&SshKeyDeleted { user_id: user, ssh_key_id: id })?;
    removed(tx, "ssh_key", id, &key)
}
