//! The endpoints as a client meets them.

use std::sync::Arc;

use ::http::{Method, Request};
use async_trait::async_trait;
use axum::{Router, body::Body};
use endpoint::{
    Authenticator, Caller, ClientInfo, Directory, Grants, Limits, OrgFacts, ProjectFacts, Services,
};
use kernel::{
    Failure, Role, Secret,
    ids::{InvitationId, OrgId, ProjectId, ServiceAccountId, SessionId, UserId},
};
use serde_json::{Value, json};
use tower::ServiceExt as _;
use uuid::Uuid;

use super::kit::Kit;

/// Everybody is who the token says.
struct ByName;

#[async_trait]
impl Authenticator for ByName {
    async fn authenticate(&self, bearer: &str, _: &ClientInfo) -> Result<Caller, Failure> {
        if bearer == "machine" {
            return Ok(Caller::ServiceAccount {
                id: ServiceAccountId::from(Uuid::from_u128(3)),
                org: OrgId::from(Uuid::from_u128(4)),
                project: ProjectId::from(Uuid::from_u128(5)),
            });
        }
        let platform = if bearer == "ops" { vec![Role::PlatformOps] } else { Vec::new() };
        let grants = Arc::new(Grants { platform, ..Grants::default() });
        let (id, session) = (UserId::from(Uuid::from_u128(1)), SessionId::from(Uuid::from_u128(2)));
        Ok(Caller::User { id, session, grants })
    }
}

struct Nowhere;

#[async_trait]
impl Directory for Nowhere {
    async fn org(&self, _: OrgId) -> Result<Option<OrgFacts>, Failure> {
        Ok(None)
    }
    async fn project(&self, _: ProjectId) -> Result<Option<ProjectFacts>, Failure> {
        Ok(None)
    }
    async fn invitation(&self, _: InvitationId) -> Result<Option<OrgId>, Failure> {
        Ok(None)
    }
}

struct Client(Router);

impl Client {
    fn new(kit: &Kit) -> Self {
        let sealer = trust::Sealer::for_purpose(&Secret::new([7; 32]), b"stored responses").unwrap();
        let services = Services {
            db: kit.test.db.clone(),
            authenticator: Arc::new(ByName),
            directory: Arc::new(Nowhere),
            policies: Arc::new(identity::api::Policies::new(kit.test.db.clone())),
            answers: Arc::new(sealer),
        };
        Self(endpoint::router(services, Limits::default(), capacity::endpoints(&kit.capacity)))
    }

    async fn send(&self, who: &str, method: Method, path: &str, body: Option<Value>) -> (u16, Value) {
        let request = Request::builder()
            .method(method)
            .uri(format!("/api/v1/{path}"))
            .header("authorization", format!("Bearer {who}"))
            .header("content-type", "application/json")
            .body(body.map_or_else(Body::empty, |body| Body::from(body.to_string())))
            .unwrap();
        let response = self.0.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let bytes = axum::body::to_bytes(response.into_body(), 4 << 20).await.unwrap();
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }
}

#[tokio::test]
async fn people_and_machines_read_the_catalog_and_only_operators_change_it() {
    let kit = Kit::new().await;
    kit.node("gpu-1", 8).await;
    let client = Client::new(&kit);
    for who in ["person", "machine", "ops"] {
        let (status, catalog) = client.send(who, Method::GET, "catalog", None).await;
        assert_eq!(status, 200, "{who}: {catalog}");
        let items = catalog["items"].as_array().unwrap();
        assert_eq!(items.len(), 7);
        let slice = items.iter().find(|item| item["sku"] == "h200-sxm-slice").unwrap();
        assert_eq!(slice["price"]["unit_price_minor"], 450);
        assert_eq!(slice["regions"][0]["free"], 8);
        assert!(!catalog.to_string().contains("gpu-1"), "no layout: {catalog}");
    }
    for (who, expected) in [("person", 403), ("machine", 403), ("ops", 200)] {
        assert_eq!(client.send(who, Method::GET, "platform/skus", None).await.0, expected, "{who}");
        assert_eq!(client.send(who, Method::GET, "platform/discrepancies", None).await.0, expected, "{who}");
    }
}

#[tokio::test]
async fn an_operator_makes_a_product_prices_it_and_withdraws_it() {
    let kit = Kit::new().await;
    let client = Client::new(&kit);
    let new = json!({
        "sku": "b200-slice", "vendor": "nvidia", "display_name": "B200, slice", "shape": "gpu_slice",
        "slot_model": "B200", "gpus_total": 8, "allowed_gpu_counts": [2, 1],
        "price": { "unit": "gpu_hour", "unit_price_minor": 900, "currency": "USD" },
    });
    let (status, made) = client.send("ops", Method::POST, "platform/skus", Some(new.clone())).await;
    assert_eq!((status, &made["allowed_gpu_counts"]), (201, &json!([1, 2])), "{made}");
    assert_eq!(client.send("ops", Method::POST, "platform/skus", Some(new)).await.0, 409);
    let size = json!({ "name": "b200_1g", "gpus": 1, "vcpus": 32, "memory_mib": 65536, "is_default": true });
    let path = "platform/skus/b200-slice/profiles";
    assert_eq!(client.send("ops", Method::POST, path, Some(size)).await.0, 201);
    let size = json!({ "name": "b200_4g", "gpus": 4, "vcpus": 32, "memory_mib": 65536 });
    assert_eq!(client.send("ops", Method::POST, path, Some(size)).await.0, 400, "four are not allowed");
    let price = json!({ "unit": "gpu_hour", "unit_price_minor": 800, "currency": "USD", "valid_from": "2032-01-01T00:00:00Z" });
    assert_eq!(client.send("ops", Method::POST, "platform/skus/b200-slice/prices", Some(price)).await.0, 201);
    let (_, prices) = client.send("ops", Method::GET, "platform/skus/b200-slice/prices", None).await;
    assert_eq!(prices["items"].as_array().unwrap().len(), 2);
    let (_, catalog) = client.send("person", Method::GET, "catalog", None).await;
    assert_eq!(catalog["items"].as_array().unwrap().len(), 8);
    let withdrawn = json!({ "active": false });
    let (status, sku) = client.send("ops", Method::PATCH, "platform/skus/b200-slice", Some(withdrawn)).await;
    assert_eq!((status, &sku["active"]), (200, &json!(false)));
    let (_, catalog) = client.send("person", Method::GET, "catalog", None).await;
    assert_eq!(catalog["items"].as_array().unwrap().len(), 7);
    let audited: i64 =
        kit.one("SELECT count(*) FROM audit_logs WHERE action LIKE 'sku%' AND result = 'allowed'").await;
    assert_eq!(audited, 4);
}
