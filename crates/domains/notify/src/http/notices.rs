//! `/me/notifications`: what you were told.

use endpoint::{Empty, Endpoint, Flag, In, Json, ScopeKind, Sse, Whole, Write, get, post};
use kernel::{Code, Failure, Page, PageQuery, Permission, Problem, ids::NotificationId};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Notify,
    model::notice::Notification,
    service::{
        notices::{notification_list, notification_read, notification_read_all},
        watching,
    },
};

pub fn endpoints(notify: &Notify) -> Vec<Endpoint> {
    vec![
        get("/api/v1/me/notifications", "notification_list", "List your notifications")
            .describe("Newest first.")
            .in_scope(ScopeKind::Person)
            .needs(Permission::SelfRead)
            .handle(notify.clone(), list),
        get("/api/v1/me/notifications/stream", "notification_stream", "Follow your notifications")
            .describe(
                "Server-sent events named `notification`: first those after `Last-Event-ID` (or `after`), then \
                 each new one. Without either, only new ones. The server ends the stream after some minutes: \
                 reconnect.",
            )
            .in_scope(ScopeKind::Person)
            .errors(&[Code::RateLimitExceeded])
            .needs(Permission::SelfRead)
            .handle(notify.clone(), follow),
        post("/api/v1/me/notifications/read", "notification_read_all", "Mark your notifications as read")
            .describe("Up to and including `up_to_seq`, or all.")
            .in_scope(ScopeKind::Person)
            .needs(Permission::SelfUpdate)
            .audited("notification.read_all")
            .handle(notify.clone(), read_all),
        post(
            "/api/v1/me/notifications/{notification_id}/read",
            "notification_read",
            "Mark one of your notifications as read",
        )
        .in_scope(ScopeKind::Person)
        .needs(Permission::SelfUpdate)
        .audited("notification.read")
        .handle(notify.clone(), read),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct ListQuery {
    #[serde(flatten)]
    page: PageQuery,
    /// Only those that were not read.
    #[serde(default)]
    #[schemars(with = "bool")]
    unread: Option<Flag>,
}

async fn list(
    _: Notify,
    mut tx: ReadTx,
    input: In<Empty, ListQuery, ()>,
) -> Result<Json<Page<Notification>>, Failure> {
    let query = input.query;
    let unread = query.unread.is_some_and(|unread| unread.0);
    Ok(Json(notification_list(&mut tx, input.access.user()?, unread, &query.page).await?))
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct StreamQuery {
    /// Only those after this number; `Last-Event-ID` comes before it.
    #[serde(default)]
    #[schemars(with = "i64", range(min = 0))]
    after: Option<Whole>,
}

async fn follow(notify: Notify, tx: ReadTx, input: In<Empty, StreamQuery, ()>) -> Result<Sse, Failure> {
    let after = input.last_event_id.or(input.query.after.map(|after| after.0));
    watching::follow(&notify, tx, input.access.user()?, after).await
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct NotificationPath {
    notification_id: NotificationId,
}

async fn read(
    _: Notify,
    mut tx: Write,
    input: In<NotificationPath, Empty, ()>,
) -> Result<Json<Notification>, Failure> {
    let user = input.access.user()?;
    Ok(Json(notification_read(&mut tx, user, input.path.notification_id).await?))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NotificationReadAll {
    /// The `seq` of the newest one that you saw; all when it is absent.
    #[serde(default)]
    #[schemars(range(min = 0))]
    up_to_seq: endpoint::Given<i64>,
}

/// How many were marked by it.
#[derive(Serialize, JsonSchema)]
struct NotificationsRead {
    count: i64,
}

async fn read_all(
    _: Notify,
    mut tx: Write,
    input: In<Empty, Empty, Json<NotificationReadAll>>,
) -> Result<Json<NotificationsRead>, Failure> {
    let up_to = input.body.0.up_to_seq.0;
    if up_to.is_some_and(|seq| seq < 0) {
        return Err(Problem::field("up_to_seq", "must not be negative").into());
    }
    let count = notification_read_all(&mut tx, input.access.user()?, up_to).await?;
    Ok(Json(NotificationsRead { count: i64::try_from(count).unwrap_or(i64::MAX) }))
}
