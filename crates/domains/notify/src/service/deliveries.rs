//! Messages as operators see them.

use kernel::{Code, Failure, Page, PageQuery, Problem, ids::DeliveryId};
use pg::{ReadTx, WriteTx, changed, found};

use crate::{
    model::delivery::{Channel, Delivery, DeliveryState},
    store,
};

pub async fn delivery_list(
    tx: &mut ReadTx,
    channel: Option<Channel>,
    state: Option<DeliveryState>,
    page: &PageQuery,
) -> Result<Page<Delivery>, Failure> {
    let deliveries = store::deliveries::list(tx.conn(), channel, state, page).await?;
    Ok(page.page(deliveries, |delivery| delivery.id.uuid()))
}

/// A message that was given up begins anew.
pub async fn delivery_retry(tx: &mut WriteTx, id: DeliveryId) -> Result<Delivery, Failure> {
    let now = tx.db().ambient().now();
    let before = found(store::deliveries::get(tx.conn(), id).await?, "delivery")?;
    if let Some(org) = before.org_id {
        tx.audit_in_org(org);
    }
    if !store::deliveries::requeue(tx.conn(), id, now).await? {
        let text = format!("The delivery is {}; only a failed delivery can be retried.", before.state);
        return Err(Problem::new(Code::InvalidTransition, text).into());
    }
    let after = found(store::deliveries::get(tx.conn(), id).await?, "delivery")?;
    changed(tx, "delivery", id, &before, &after)?;
    Ok(after)
}
