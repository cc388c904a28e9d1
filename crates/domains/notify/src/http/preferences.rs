//! `/me/notification-preferences`: what you want to be told, and how.

use endpoint::{Empty, Endpoint, Given, In, Json, ScopeKind, Write, get, put};
use kernel::{Code, Failure, Permission, Problem};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    Notify,
    model::{
        notice::NoticeKind,
        preferences::{NotificationPreferences, PreferenceChange},
    },
    service::preferences::{notification_preferences_get, notification_preferences_update},
};

const MOST_ITEMS: usize = 100;

pub fn endpoints(notify: &Notify) -> Vec<Endpoint> {
    const PATH: &str = "/api/v1/me/notification-preferences";
    vec![
        get(PATH, "notification_preferences_get", "Show your notification preferences")
            .in_scope(ScopeKind::Person)
            .needs(Permission::SelfRead)
            .handle(notify.clone(), show),
        put(PATH, "notification_preferences_update", "Change your notification preferences")
            .describe(
                "Kinds that are not named do not change. Kinds with `in_app_fixed` cannot be disabled in the \
                 product.",
            )
            .in_scope(ScopeKind::Person)
            .errors(&[Code::Conflict])
            .needs(Permission::SelfUpdate)
            .audited("notification_preferences.update")
            .handle(notify.clone(), update),
    ]
}

async fn show(
    _: Notify,
    mut tx: ReadTx,
    input: In<Empty, Empty, ()>,
) -> Result<Json<NotificationPreferences>, Failure> {
    Ok(Json(notification_preferences_get(&mut tx, input.access.user()?).await?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NotificationPreferencesUpdate {
    #[schemars(length(max = 100))]
    items: Vec<NotificationPreferenceChange>,
}

/// A choice to make; what is absent stays as it is.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NotificationPreferenceChange {
    kind: NoticeKind,
    #[serde(default)]
    in_app: Given<bool>,
    #[serde(default)]
    email: Given<bool>,
}

async fn update(
    _: Notify,
    mut tx: Write,
    input: In<Empty, Empty, Json<NotificationPreferencesUpdate>>,
) -> Result<Json<NotificationPreferences>, Failure> {
    let items = input.body.0.items;
    if items.len() > MOST_ITEMS {
        return Err(Problem::field("items", "must be at most 100").into());
    }
    let change = |item: NotificationPreferenceChange| PreferenceChange {
        kind: item.kind,
        in_app: item.in_app.0,
        email: item.email.0,
    };
    let items: Vec<_> = items.into_iter().map(change).collect();
    let user = input.access.user()?;
    Ok(Json(notification_preferences_update(&mut tx, user, &items, input.if_match).await?))
}
