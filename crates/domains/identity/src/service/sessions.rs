//! One's own sign-in sessions. A revoked row is what denies its tokens, and what the issuer checks before
//! it refreshes any.

use chrono::{DateTime, Utc};
use kernel::{
    Failure, Page, PageQuery,
    ids::{SessionId, UserId},
};
use pg::{ReadTx, WriteTx};

use super::{found, removed};
use crate::{
    model::{events::SessionRevoked, person::Session},
    store,
};

pub async fn session_list(
    tx: &mut ReadTx,
    user: UserId,
    current: SessionId,
    page: &PageQuery,
    now: DateTime<Utc>,
) -> Result<Page<Session>, Failure> {
    let sessions = store::sessions::list(tx.conn(), user, current, page, now).await?;
    Ok(page.page(sessions, |session| session.id.uuid()))
}

/// `current` is the session that asks: it may end itself.
pub async fn session_revoke(
    tx: &mut WriteTx,
    user: UserId,
    id: SessionId,
    current: SessionId,
) -> Result<(), Failure> {
    let now = tx.db().ambient().now();
    let revoked = store::sessions::revoke(tx.conn(), user, id, id == current, now).await?;
    let was_alive = found(revoked, "session")?;
    removed(tx, "session", id, &id)?;
    if was_alive {
        tx.emit(&SessionRevoked { user_id: user, session_id: id })?;
    }
    tx.invalidate(format!("session:{}", id.uuid()));
    Ok(())
}

/// Everything but the session that asks, and the browser it was made from: sessions, and sign-ins of browsers at
/// `issuer`, from which new sessions could be made.
pub async fn session_revoke_others(
    tx: &mut WriteTx,
    user: UserId,
    current: SessionId,
    issuer: &str,
) -> Result<(), Failure> {
    let now = tx.db().ambient().now();
    // First, because it locks the account: nothing more is made from these browsers after this.
    store::sessions::end_browsers(tx.conn(), issuer, current).await?;
    let revoked = store::sessions::revoke_others(tx.conn(), user, current, now).await?;
    removed(tx, "session", user, &revoked)?;
    for id in revoked {
        tx.emit(&SessionRevoked { user_id: user, session_id: id })?;
        tx.invalidate(format!("session:{}", id.uuid()));
    }
    Ok(())
}
