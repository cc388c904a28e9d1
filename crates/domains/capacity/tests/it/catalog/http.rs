//! The endpoints as a client meets them.

use ::http::{Method, Request};
use axum::{Router, body::Body};
use endpoint::Limits;
use serde_json::{Value, json};
use testkit::Callers;
use tower::ServiceExt as _;

use super::kit::Kit;

struct Client(Router);

impl Client {
    fn new(kit: &Kit) -> Self {
        let callers = Callers::operators();
        callers.service_account("machine", kit.org, kit.creator.project);
        let services = callers.services(&kit.test.db, identity::api::Policies::new(kit.test.db.clone()));
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
