//! The door for messages, as the provider meets it.

use axum::body::Body;
use http::Request;
use payments::model::webhook::sign;
use tower::ServiceExt as _;

use crate::kit::{Kit, NEXT_SECRET, SECRET, message};

async fn knock(kit: &Kit, signatures: &[&str], body: &[u8]) -> (u16, String) {
    let mut request = Request::post("/webhooks/payments");
    for signature in signatures {
        request = request.header("stripe-signature", *signature);
    }
    let router = payments::webhook::router(kit.payments.clone());
    let response = router.oneshot(request.body(Body::from(body.to_vec())).unwrap()).await.unwrap();
    let status = response.status().as_u16();
    let bytes = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
    (status, String::from_utf8(bytes.to_vec()).unwrap())
}

#[tokio::test]
async fn a_signed_message_is_kept_byte_for_byte_once_and_any_other_leaves_nothing() {
    let kit = Kit::new().await;
    let now = kit.now().timestamp();
    let body = message("evt_1", "customer.created", serde_json::json!({ "id": "cus_ü" }));
    let good = sign(SECRET, now, &body);
    let nameless = br#"{"type": "x"}"#;
    let long = vec![b' '; 256 * 1024 + 1];
    let refused: [(&[&str], &[u8], u16); 8] = [
        (&[], &body, 400),
        (&[&good, &good], &body, 400),
        (&["t=1,v1=00"], &body, 400),
        (&[&sign("whsec_other", now, &body)], &body, 400),
        (&[&sign(SECRET, now - 301, &body)], &body, 400),
        (&[&good], &body[1..], 400),
        (&[&sign(SECRET, now, nameless)], nameless, 400),
        (&[&sign(SECRET, now, &long)], &long, 413),
    ];
    for (signatures, body, expected) in refused {
        let (status, text) = knock(&kit, signatures, body).await;
        assert_eq!(status, expected, "{signatures:?}: {text}");
        let envelope: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(envelope["error"]["suggestion"].is_string(), "{text}");
    }
    assert_eq!(kit.one::<i64>("SELECT count(*) FROM payment_messages").await, 0);
    for signature in [&good, &sign(NEXT_SECRET, now, &body)] {
        assert_eq!(knock(&kit, &[signature], &body).await.0, 200);
    }
    assert_eq!(kit.one::<i64>("SELECT count(*) FROM payment_messages").await, 1);
    assert_eq!(kit.one::<Vec<u8>>("SELECT body FROM payment_messages").await, body);
}
