//! Service accounts and their keys. What a presented key is worth, the issuer decides.

use chrono::{DateTime, TimeDelta, Utc};
use kernel::{
    Failure, Page, PageQuery, Secret,
    ids::{OrgId, ProjectId, ServiceAccountId, ServiceAccountKeyId},
    policy::Setting,
};
use pg::{Connection, ReadTx, WriteTx};

use super::{changed, created, found, removed};
pub use crate::store::service_accounts::{AccountChange, NewAccount};
use crate::{
    model::{
        events::{
            ServiceAccountChanged, ServiceAccountCreated, ServiceAccountDeleted, ServiceAccountKeyCreated,
            ServiceAccountKeyRevoked,
        },
        service_account::{
            ServiceAccount, ServiceAccountKey, another_key, check_ssh_keys, key_hash, key_text,
        },
    },
    store,
};

pub async fn service_account_create(
    tx: &mut WriteTx,
    org: OrgId,
    project: ProjectId,
    new: NewAccount,
) -> Result<ServiceAccount, Failure> {
    let (now, id) = (tx.db().ambient().now(), tx.db().ambient().id::<ServiceAccountId>());
    let new = NewAccount { ssh_public_keys: check_ssh_keys(&new.ssh_public_keys)?, ..new };
    let account = store::service_accounts::insert(tx.conn(), org, project, id, &new, now).await?;
    created(tx, "service_account", id, &account)?;
    tx.emit(&ServiceAccountCreated { project_id: project, service_account_id: id })?;
    Ok(account)
}

pub async fn service_account_get(
    tx: &mut ReadTx,
    project: ProjectId,
    id: ServiceAccountId,
) -> Result<ServiceAccount, Failure> {
    Ok(found(store::service_accounts::get(tx.conn(), project, id).await?, "service_account")?)
}

/// Whether the project has this account.
pub async fn service_account_check(
    conn: &mut Connection,
    project: ProjectId,
    id: ServiceAccountId,
) -> Result<(), Failure> {
    found(store::service_accounts::get(conn, project, id).await?, "service_account")?;
    Ok(())
}

pub async fn service_account_list(
    tx: &mut ReadTx,
    org: OrgId,
    project: ProjectId,
    page: &PageQuery,
) -> Result<Page<ServiceAccount>, Failure> {
    let accounts = store::service_accounts::list(tx.conn(), org, project, page).await?;
    Ok(page.page(accounts, |account| account.id.uuid()))
}

pub async fn service_account_update(
    tx: &mut WriteTx,
    project: ProjectId,
    id: ServiceAccountId,
    change: AccountChange,
    if_match: Option<i64>,
) -> Result<ServiceAccount, Failure> {
    let now = tx.db().ambient().now();
    let before = found(store::service_accounts::lock(tx.conn(), project, id).await?, "service_account")?;
    let ssh_public_keys = change.ssh_public_keys.as_deref().map(check_ssh_keys).transpose()?;
    let change = AccountChange { ssh_public_keys, ..change };
    let swap = store::service_accounts::update(tx.conn(), project, id, &change, if_match, now);
    let after = swap.await?.or_problem("service_account")?;
    changed(tx, "service_account", id, &before, &after)?;
    let state = after.state;
    tx.emit(&ServiceAccountChanged { project_id: project, service_account_id: id, state })?;
    tx.invalidate(format!("sa:{}", id.uuid()));
    Ok(after)
}

pub async fn service_account_delete(
    tx: &mut WriteTx,
    project: ProjectId,
    id: ServiceAccountId,
    if_match: Option<i64>,
) -> Result<(), Failure> {
    found(store::service_accounts::lock(tx.conn(), project, id).await?, "service_account")?;
    let keys = store::service_account_keys::ids(tx.conn(), id).await?;
    let swap = store::service_accounts::delete(tx.conn(), project, id, if_match).await?;
    let before = swap.or_problem("service_account")?;
    removed(tx, "service_account", id, &before)?;
    tx.emit(&ServiceAccountDeleted { project_id: project, service_account_id: id })?;
    tx.invalidate(format!("sa:{}", id.uuid()));
    for key in keys {
        tx.invalidate(format!("sak:{key}"));
    }
    Ok(())
}

/// Returns the key and the text that proves possession of it, which nobody can read again.
pub async fn service_account_key_create(
    tx: &mut WriteTx,
    (org, project): (OrgId, ProjectId),
    account: ServiceAccountId,
    expires_in_days: Option<u16>,
    limit: Setting,
) -> Result<(ServiceAccountKey, Secret), Failure> {
    let ambient = tx.db().ambient().clone();
    let (now, id) = (ambient.now(), ambient.id::<ServiceAccountKeyId>());
    found(store::service_accounts::lock(tx.conn(), project, account).await?, "service_account")?;
    another_key(store::service_account_keys::live_count(tx.conn(), account, now).await?, limit)?;
    let secret = Secret::new(ambient.bytes::<32>());
    let hash = key_hash(secret.expose());
    let expires_at = expires_in_days.map(|days| now + TimeDelta::days(days.into()));
    let key =
        store::service_account_keys::insert(tx.conn(), org, account, id, &hash, expires_at, now).await?;
    created(tx, "service_account_key", id, &key)?;
    tx.emit(&ServiceAccountKeyCreated { service_account_id: account, key_id: id })?;
    Ok((key, key_text(id, secret.expose())))
}

pub async fn service_account_key_list(
    tx: &mut ReadTx,
    project: ProjectId,
    account: ServiceAccountId,
    page: &PageQuery,
    now: DateTime<Utc>,
) -> Result<Page<ServiceAccountKey>, Failure> {
    found(store::service_accounts::get(tx.conn(), project, account).await?, "service_account")?;
    let keys = store::service_account_keys::list(tx.conn(), account, page, now).await?;
    Ok(page.page(keys, |key| key.id.uuid()))
}

pub async fn service_account_key_revoke(
    tx: &mut WriteTx,
    project: ProjectId,
    account: ServiceAccountId,
    id: ServiceAccountKeyId,
) -> Result<(), Failure> {
    let now = tx.db().ambient().now();
    found(store::service_accounts::get(tx.conn(), project, account).await?, "service_account")?;
    let revoked = store::service_account_keys::revoke(tx.conn(), account, id, now).await?;
    let key = found(revoked, "service_account_key")?;
    removed(tx, "service_account_key", id, &key)?;
    tx.emit(&ServiceAccountKeyRevoked { service_account_id: account, key_id: id })?;
    tx.invalidate(format!("sak:{}", id.uuid()));
    Ok(())
}
