//! Pools.

use kernel::{
    Failure, Page, PageQuery,
    ids::PoolId,
    text::{Name, Term},
};
use pg::{ReadTx, WriteTx};

use super::{changed, created, found, removed};
use crate::{
    model::{pool::Pool, text::RegionCode},
    store,
};

pub async fn pool_create(
    tx: &mut WriteTx,
    region: RegionCode,
    name: Name,
    description: Option<Term>,
) -> Result<Pool, Failure> {
    let (now, id) = (tx.db().ambient().now(), tx.db().ambient().id::<PoolId>());
    let description = description.as_ref().map_or("", Term::as_str);
    let pool =
        store::pools::insert(tx.conn(), id, (region.as_str(), name.as_str(), description), now).await?;
    created(tx, "node_pool", id, &pool)?;
    Ok(pool)
}

pub async fn pool_get(tx: &mut ReadTx, id: PoolId) -> Result<Pool, Failure> {
    Ok(found(store::pools::get(tx.conn(), id).await?, "pool")?)
}

pub async fn pool_list(
    tx: &mut ReadTx,
    region: Option<&RegionCode>,
    page: &PageQuery,
) -> Result<Page<Pool>, Failure> {
    let pools = store::pools::list(tx.conn(), region.map(RegionCode::as_str), page).await?;
    Ok(page.page(pools, |pool| pool.id.uuid()))
}

pub async fn pool_update(
    tx: &mut WriteTx,
    id: PoolId,
    (name, description): (Option<Name>, Option<Term>),
    if_match: Option<i64>,
) -> Result<Pool, Failure> {
    let now = tx.db().ambient().now();
    let before = found(store::pools::get(tx.conn(), id).await?, "pool")?;
    let change = (name.as_ref().map(Name::as_str), description.as_ref().map(Term::as_str));
    let after = store::pools::update(tx.conn(), id, change, if_match, now).await?.or_problem("pool")?;
    changed(tx, "node_pool", id, &before, &after)?;
    Ok(after)
}

/// Refused while nodes are in it.
pub async fn pool_delete(tx: &mut WriteTx, id: PoolId, if_match: Option<i64>) -> Result<(), Failure> {
    store::pools::leave_deleted(tx.conn(), id).await?;
    let before = store::pools::delete(tx.conn(), id, if_match).await?.or_problem("pool")?;
    removed(tx, "node_pool", id, &before)
}
