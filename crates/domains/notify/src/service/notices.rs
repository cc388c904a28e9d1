//! Notifications in the product.

use kernel::{
    Failure, Page, PageQuery,
    ids::{NotificationId, UserId},
};
use pg::{ReadTx, WriteTx, found};

use crate::{model::notice::Notification, store};

pub async fn notification_list(
    tx: &mut ReadTx,
    user: UserId,
    unread: bool,
    page: &PageQuery,
) -> Result<Page<Notification>, Failure> {
    let notifications = store::notices::list(tx.conn(), user, unread, page).await?;
    Ok(page.page(notifications, |notification| notification.id.uuid()))
}

pub async fn notification_read(
    tx: &mut WriteTx,
    user: UserId,
    id: NotificationId,
) -> Result<Notification, Failure> {
    let now = tx.db().ambient().now();
    let read = found(store::notices::read(tx.conn(), user, id, now).await?, "notification")?;
    tx.record("notification", id, None::<&()>, Some(&read))?;
    Ok(read)
}

/// Returns how many were read by it.
pub async fn notification_read_all(
    tx: &mut WriteTx,
    user: UserId,
    up_to_seq: Option<i64>,
) -> Result<u64, Failure> {
    let now = tx.db().ambient().now();
    let count = store::notices::read_all(tx.conn(), user, up_to_seq.unwrap_or(i64::MAX), now).await?;
    tx.record("notification", user, None::<&()>, Some(&count))?;
    Ok(count)
}
