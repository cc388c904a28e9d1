//! Signing keys: rotation with overlap, seen by every replica, sealed at rest.

use std::sync::Arc;

use crate::kit::{Kit, config, kid, who};
use identity::{
    authn::Authn,
    issuer::{Issuer, IssuerConfig},
    service::policy_cache::Policies,
};
use kernel::{Code, Secret};
use pg::Db;
use serde_json::Value;
use testkit::Browser;

async fn published(kit: &Kit) -> Vec<String> {
    let jwks: Value = kit.http.get(kit.url("/auth/jwks")).send().await.unwrap().json().await.unwrap();
    jwks["keys"].as_array().unwrap().iter().map(|k| k["kid"].as_str().unwrap().to_owned()).collect()
}

/// Another replica: its own connections and caches, the same database and clock.
fn replica(kit: &Kit, change: impl FnOnce(IssuerConfig) -> IssuerConfig) -> (Issuer, Authn) {
    let db = Db::new(kit.db.connect.clone(), 4, 4, kit.db.db.ambient().clone());
    let issuer = Issuer::new(db.clone(), change(config(&kit.base)), Arc::new(Policies::new(db.clone())));
    (issuer.clone(), Authn::new(db, vec![issuer.trusted()]))
}

#[tokio::test]
async fn after_a_rotation_old_tokens_count_until_they_expire_and_new_ones_at_once_everywhere() {
    let kit = Kit::start().await;
    let (_other_issuer, other) = replica(&kit, |c| c);
    let mut browser = Browser::default();
    kit.sign_up(&mut browser, "ann@example.org").await;
    let before = kit.tokens(&mut browser, "a").await;
    assert!(who(&other, before["access_token"].as_str().unwrap()).await.is_ok());
    let old = kid(&before["access_token"]);
    assert_eq!(published(&kit).await, std::slice::from_ref(&old));

    kit.issuer.keys().rotate().await.unwrap();
    let after = kit.tokens(&mut browser, "b").await;
    let new = kid(&after["access_token"]);
    assert_ne!(old, new);
    assert_eq!(published(&kit).await, [new.clone(), old.clone()]);
    kit.advance(1);
    for token in [&before, &after] {
        assert!(kit.who(&token["access_token"]).await.is_ok());
        assert!(
            who(&other, token["access_token"].as_str().unwrap()).await.is_ok(),
            "no notification was heard"
        );
    }
    kit.advance(20 * 60);
    kit.issuer.tidy().await.unwrap();
    assert_eq!(published(&kit).await, [new]);
    let rotations = "SELECT count(*) FROM audit_logs WHERE action = 'issuer.keys.rotate'";
    assert_eq!(kit.count(rotations).await, 2);
}

#[tokio::test]
async fn replicas_that_start_together_make_one_key() {
    let kit = Kit::start().await;
    let replicas: Vec<_> = (0..4).map(|_| replica(&kit, |c| c).0).collect();
    let made = futures_util::future::join_all(replicas.iter().map(|r| r.keys().jwks())).await;
    let first = made[0].as_ref().unwrap();
    assert!(made.iter().all(|jwks| jwks.as_ref().unwrap() == first));
    assert_eq!(kit.count("SELECT count(*) FROM issuer_keys").await, 1);
}

#[tokio::test]
async fn an_old_key_is_replaced_by_age_once() {
    let kit = Kit::start().await;
    let first = published(&kit).await;
    kit.issuer.tidy().await.unwrap();
    assert_eq!(published(&kit).await, first);
    kit.advance(30 * 86_400);
    let (other, _) = replica(&kit, |c| c);
    let (a, b) = tokio::join!(kit.issuer.tidy(), other.tidy());
    a.unwrap();
    b.unwrap();
    let now = published(&kit).await;
    assert_eq!((now.len(), now[1..].to_vec()), (2, first));
}

#[tokio::test]
async fn with_another_master_key_nothing_is_signed_but_rotation_helps() {
    let kit = Kit::start().await;
    let mut browser = Browser::default();
    kit.sign_up(&mut browser, "ann@example.org").await;
    let tokens = kit.tokens(&mut browser, "a").await;
    let (other, authn) = replica(&kit, |c| IssuerConfig { master_key: Secret::new([8; 32]), ..c });
    assert!(who(&authn, tokens["access_token"].as_str().unwrap()).await.is_ok(), "verifying needs no secret");
    let failure = format!("{:?}", other.keys().jwks().await.unwrap_err());
    assert!(failure.contains("Sealed"), "{failure}");
    other.keys().rotate().await.unwrap();
    other.keys().jwks().await.unwrap();
}

#[tokio::test]
async fn a_token_signed_by_a_key_that_is_not_ours_is_refused() {
    let kit = Kit::start().await;
    let mut browser = Browser::default();
    kit.sign_up(&mut browser, "ann@example.org").await;
    let tokens = kit.tokens(&mut browser, "a").await;
    let claims = crate::kit::claims(&tokens["access_token"]);
    let mut forged = crate::kit::SigningKey::new("unheard-of");
    assert_eq!(who(&kit.authn, &forged.sign(&claims)).await.unwrap_err(), Code::TokenInvalid);
    forged.kid = kid(&tokens["access_token"]);
    assert_eq!(who(&kit.authn, &forged.sign(&claims)).await.unwrap_err(), Code::TokenInvalid);
}
