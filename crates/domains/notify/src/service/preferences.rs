//! Preferences.

use kernel::{Failure, Problem, ids::UserId};
use pg::{ReadTx, WriteTx, changed};

use crate::{
    model::preferences::{NotificationPreferences, PreferenceChange},
    store,
};

pub async fn notification_preferences_get(
    tx: &mut ReadTx,
    user: UserId,
) -> Result<NotificationPreferences, Failure> {
    let (choices, version) = store::preferences::get(tx.conn(), user).await?;
    Ok(choices.view(version))
}

/// Kinds that are not named stay as they are.
pub async fn notification_preferences_update(
    tx: &mut WriteTx,
    user: UserId,
    changes: &[PreferenceChange],
    if_match: Option<i64>,
) -> Result<NotificationPreferences, Failure> {
    let now = tx.db().ambient().now();
    let (mut choices, version) = store::preferences::get(tx.conn(), user).await?;
    if if_match.is_some_and(|expected| expected != version) {
        return Err(Problem::version_conflict(version).into());
    }
    let before = choices.view(version);
    choices.change(changes)?;
    let stored = choices.stored()?;
    let swap = store::preferences::set(tx.conn(), user, &stored, version, now).await?;
    let after = choices.view(swap.or_problem("preferences")?);
    changed(tx, "notification_preferences", user, &before, &after)?;
    Ok(after)
}
