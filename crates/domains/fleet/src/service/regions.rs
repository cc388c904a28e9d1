//! Regions.

use kernel::{Failure, Page, text::Name};
use pg::{ReadTx, WriteTx};

use super::{changed, created, found, removed};
use crate::{
    model::{page::KeyPageQuery, region::Region, text::RegionCode},
    store,
};

pub async fn region_create(tx: &mut WriteTx, code: RegionCode, name: Name) -> Result<Region, Failure> {
    let now = tx.db().ambient().now();
    let region = store::regions::insert(tx.conn(), code.as_str(), name.as_str(), now).await?;
    created(tx, "region", &code, &region)?;
    Ok(region)
}

pub async fn region_get(tx: &mut ReadTx, code: &RegionCode) -> Result<Region, Failure> {
    Ok(found(store::regions::get(tx.conn(), code.as_str()).await?, "region")?)
}

pub async fn region_list(tx: &mut ReadTx, page: &KeyPageQuery) -> Result<Page<Region>, Failure> {
    let regions = store::regions::list(tx.conn(), page.after(), page.limit()).await?;
    Ok(page.page(regions, |region| region.code.clone()))
}

pub async fn region_update(
    tx: &mut WriteTx,
    code: &RegionCode,
    name: Option<Name>,
    if_match: Option<i64>,
) -> Result<Region, Failure> {
    let now = tx.db().ambient().now();
    let before = found(store::regions::get(tx.conn(), code.as_str()).await?, "region")?;
    let name = name.as_ref().map(Name::as_str);
    let after =
        store::regions::update(tx.conn(), code.as_str(), name, if_match, now).await?.or_problem("region")?;
    changed(tx, "region", code, &before, &after)?;
    Ok(after)
}

/// Refused while anything refers to it.
pub async fn region_delete(
    tx: &mut WriteTx,
    code: &RegionCode,
    if_match: Option<i64>,
) -> Result<(), Failure> {
    let before = store::regions::delete(tx.conn(), code.as_str(), if_match).await?.or_problem("region")?;
    removed(tx, "region", code, &before)
}
