//! `/platform/deliveries`: messages on their way, and those that were given up.

use endpoint::{Empty, Endpoint, In, Json, ScopeKind, Write, get, post};
use kernel::{Code, Cursor, Failure, Page, PageQuery, Permission, ids::DeliveryId, page::PageSize};
use pg::ReadTx;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    Notify,
    model::delivery::{Channel, Delivery, DeliveryState},
    service::deliveries::{delivery_list, delivery_retry},
};

pub fn endpoints(notify: &Notify) -> Vec<Endpoint> {
    vec![
        get("/api/v1/platform/deliveries", "delivery_list", "List deliveries")
            .describe("Mail and webhooks, newest first. Abandoned ones are `failed`.")
            .in_scope(ScopeKind::Platform)
            .needs(Permission::PlatformOpsRead)
            .handle(notify.clone(), list),
        post(
            "/api/v1/platform/deliveries/{delivery_id}/retry",
            "delivery_retry",
            "Retry an abandoned delivery",
        )
        .in_scope(ScopeKind::Platform)
        .errors(&[Code::InvalidTransition])
        .needs(Permission::PlatformOpsManage)
        .audited("delivery.retry")
        .handle(notify.clone(), retry),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct ListQuery {
    /// At most this many items (1–200).
    #[serde(default)]
    #[schemars(with = "PageSize")]
    page_size: PageSize,
    /// `next_cursor` of the previous page.
    #[serde(default)]
    #[schemars(with = "Cursor")]
    cursor: Option<Cursor>,
    #[serde(default)]
    #[schemars(with = "Channel")]
    channel: Option<Channel>,
    #[serde(default)]
    #[schemars(with = "DeliveryState")]
    state: Option<DeliveryState>,
}

async fn list(
    _: Notify,
    mut tx: ReadTx,
    input: In<Empty, ListQuery, ()>,
) -> Result<Json<Page<Delivery>>, Failure> {
    let query = input.query;
    let page = PageQuery { page_size: query.page_size, cursor: query.cursor };
    Ok(Json(delivery_list(&mut tx, query.channel, query.state, &page).await?))
}

#[derive(Deserialize, JsonSchema)]
#[schemars(inline)]
struct DeliveryPath {
    delivery_id: DeliveryId,
}

async fn retry(
    _: Notify,
    mut tx: Write,
    input: In<DeliveryPath, Empty, ()>,
) -> Result<Json<Delivery>, Failure> {
    Ok(Json(delivery_retry(&mut tx, input.path.delivery_id).await?))
}
