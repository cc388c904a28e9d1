//! The operators' endpoints through the real pipeline; only who calls is made up.

use axum::body::Body;
use bus::ConsumeError;
use endpoint::Limits;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use testkit::{Callers, DefaultPolicies};
use tower::ServiceExt as _;
use uuid::Uuid;

use crate::support::{Fixture, Recorder};

struct Operators(axum::Router);

impl Operators {
    fn new(fixture: &Fixture) -> Self {
        let services = Callers::operators().services(&fixture.db, DefaultPolicies);
        Self(endpoint::router(services, Limits::default(), bus::endpoints(fixture.db.clone())))
    }

    async fn call(&self, who: &str, method: Method, path: &str, body: Option<Value>) -> (StatusCode, Value) {
        let body = body.map_or_else(Body::empty, |b| Body::from(b.to_string()));
        let request = Request::builder()
            .method(method)
            .uri(format!("/api/v1/platform/{path}"))
            .header("authorization", format!("Bearer {who}"))
            .header("content-type", "application/json")
            .body(body)
            .unwrap();
        let response = self.0.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    async fn get(&self, path: &str) -> (StatusCode, Value) {
        self.call("auditor", Method::GET, path, None).await
    }
}

#[tokio::test]
async fn an_operator_sees_the_outbox_and_deals_with_dead_letters() {
    let fixture = Fixture::create().await;
    let operators = Operators::new(&fixture);
    fixture.emit([1, 2, 3]).await;
    let (status, outbox) = operators.get("outbox?page_size=2&state=pending").await;
    assert_eq!((status, &outbox["pending"]), (StatusCode::OK, &json!(3)), "{outbox}");
    assert_eq!(outbox["items"].as_array().unwrap().len(), 2);
    let cursor = outbox["next_cursor"].as_str().unwrap();
    let (_, rest) = operators.get(&format!("outbox?page_size=2&cursor={cursor}")).await;
    assert_eq!((rest["items"].as_array().unwrap().len(), rest.get("next_cursor")), (1, None));

    fixture.bus().relay().relay_batch().await.unwrap();
    let bad = Recorder::new(|_, _| Err(ConsumeError::permanent("poison")));
    fixture.bus().runner(bad.registered()).run_once().await.unwrap();
    let (status, list) = operators.get("dead-letters?consumer=test-recorder&state=dead").await;
    assert_eq!(status, StatusCode::OK);
    let ids: Vec<&str> =
        list["items"].as_array().unwrap().iter().map(|l| l["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), 3);
    let (status, shown) = operators.get(&format!("dead-letters/{}", ids[0])).await;
    assert_eq!((status, &shown["state"]), (StatusCode::OK, &json!("dead")));
    assert!(shown["envelope"]["payload"]["n"].is_u64(), "{shown}");

    let (requeue, discard) =
        (format!("dead-letters/{}/requeue", ids[0]), format!("dead-letters/{}/discard", ids[1]));
    let reason = Some(json!({ "reason": "made by a test" }));
    for who in ["auditor", "nobody"] {
        let (status, _) = operators.call(who, Method::POST, &requeue, None).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{who}");
    }
    let (status, requeued) = operators.call("ops", Method::POST, &requeue, None).await;
    assert_eq!((status, &requeued["state"]), (StatusCode::OK, &json!("requeued")));
    let (status, _) = operators.call("ops", Method::POST, &discard, Some(json!({}))).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "a reason is needed");
    let (status, discarded) = operators.call("ops", Method::POST, &discard, reason.clone()).await;
    assert_eq!((status, &discarded["discard_reason"]), (StatusCode::OK, &json!("made by a test")));
    let (status, again) = operators.call("ops", Method::POST, &discard, reason).await;
    assert_eq!((status, &again["error"]["code"]), (StatusCode::CONFLICT, &json!("invalid_transition")));

    let recorder = Recorder::good();
    fixture.bus().runner(recorder.registered()).run_once().await.unwrap();
    assert_eq!(recorder.calls(), 1);
    assert_eq!(fixture.effects().await.values().sum::<i64>(), 1);
    for action in ["dead_letter.requeue", "dead_letter.discard"] {
        let allowed: i64 =
            sqlx::query_scalar("SELECT count(*) FROM audit_logs WHERE action = $1 AND result = 'allowed'")
                .bind(action)
                .fetch_one(&mut fixture.admin().await)
                .await
                .unwrap();
        assert_eq!(allowed, 1, "{action}");
    }
}

#[tokio::test]
async fn wrong_filters_and_ids_are_refused_clearly() {
    let fixture = Fixture::create().await;
    let operators = Operators::new(&fixture);
    for path in [
        "dead-letters?consumer=a%00b",
        "dead-letters?state=lost",
        "dead-letters?colour=red",
        "outbox?page_size=0",
        "dead-letters/dl_7",
    ] {
        assert_eq!(operators.get(path).await.0, StatusCode::BAD_REQUEST, "{path}");
    }
    let unknown = format!("dead-letters/dl_{}", Uuid::from_u128(7).simple());
    assert_eq!(operators.get(&unknown).await.0, StatusCode::NOT_FOUND);
    assert_eq!(operators.call("nobody", Method::GET, "outbox", None).await.0, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn the_document_shows_flattened_parameters_and_bodies() {
    let fixture = Fixture::create().await;
    let document = endpoint::openapi::document("t", "1", &bus::endpoints(fixture.db.clone()));
    let parameters = &document["paths"]["/api/v1/platform/dead-letters"]["get"]["parameters"];
    let names: Vec<&str> = parameters.as_array().unwrap().iter().filter_map(|p| p["name"].as_str()).collect();
    for name in ["page_size", "cursor", "consumer", "state"] {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
    let detail = &document["components"]["schemas"]["DeadLetterDetail"]["properties"];
    for field in ["id", "state", "version", "created_at", "updated_at", "envelope"] {
        assert!(detail.get(field).is_some(), "{field} in {detail}");
    }
}
