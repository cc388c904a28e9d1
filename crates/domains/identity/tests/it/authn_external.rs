//! External issuers: newcomers, keys that are refreshed and outlive outages, forged tokens.

use std::sync::{Arc, atomic::Ordering};

use crate::kit::{Idp, SigningKey, ambient, count, sql, user_of, who};
use endpoint::Caller;
use identity::authn::Authn;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use kernel::{Ambient, Code, ManualClock};
use serde_json::{Value, json};
use testkit::{TestDb, eventually};

struct World {
    clock: Arc<ManualClock>,
    ambient: Ambient,
    idp: Idp,
    authn: Authn,
    db: TestDb,
}

impl World {
    async fn start() -> Self {
        let (clock, ambient) = ambient();
        let db = TestDb::create_with(ambient.clone()).await;
        let idp = Idp::start().await;
        let authn = Authn::new(db.db.clone(), vec![idp.trusted(&ambient)]);
        Self { clock, ambient, idp, authn, db }
    }

    /// The first administrator shall be whoever is reached at that address.
    async fn start_with_first_admin(email: &str) -> Self {
        let mut world = Self::start().await;
        let issuers = vec![world.idp.trusted(&world.ambient)];
        let email = kernel::text::Email::parse(email).unwrap();
        world.authn = Authn::with_first_admin(world.db.db.clone(), issuers, Some(email));
        world
    }

    async fn is_admin(&self, token: &str) -> bool {
        let caller = self.who(token).await.unwrap();
        let Caller::User { grants, .. } = caller else { panic!("a person") };
        grants.platform == [kernel::Role::PlatformAdmin]
    }

    fn claims(&self, subject: &str) -> Value {
        self.idp.claims(subject, self.ambient.now())
    }

    fn token(&self, subject: &str) -> String {
        self.idp.key.sign(&self.claims(subject))
    }

    fn with(&self, change: impl FnOnce(&mut Value)) -> String {
        let mut claims = self.claims("ann");
        change(&mut claims);
        self.idp.key.sign(&claims)
    }

    async fn who(&self, token: &str) -> Result<Caller, Code> {
        who(&self.authn, token).await
    }

    fn advance(&self, seconds: i64) {
        self.clock.advance(chrono::TimeDelta::seconds(seconds));
    }
}

#[tokio::test]
async fn a_newcomer_gets_a_personal_organization_and_a_second_session_gets_none() {
    let world = World::start().await;
    let caller = world.who(&world.token("ann")).await.unwrap();
    let Caller::User { grants, .. } = &caller else { panic!("a person") };
    assert_eq!((grants.orgs.len(), grants.projects.len()), (1, 1));
    let again = world.with(|c| c["sid"] = json!("another"));
    assert_eq!(user_of(&world.who(&again).await.unwrap()), user_of(&caller));
    assert_eq!(count(&world.db, "SELECT count(*) FROM organizations WHERE kind = 'personal'").await, 1);
    assert_eq!(count(&world.db, "SELECT count(*) FROM projects WHERE slug = 'default'").await, 1);
    assert_eq!(count(&world.db, "SELECT count(*) FROM account_sessions").await, 2);
    let event = "SELECT count(*) FROM outbox_events WHERE event_type = 'identity.user.created' AND org_id IS NOT NULL";
    assert_eq!(count(&world.db, event).await, 1);
    let audited = "SELECT count(*) FROM audit_logs a JOIN organizations o ON o.id = a.org_id WHERE action = 'user.first_sign_in'";
    assert_eq!(count(&world.db, audited).await, 1, "in the chain of the new organization");
}

#[tokio::test]
async fn concurrent_first_requests_make_one_user_one_organization_and_one_session() {
    let world = World::start().await;
    let token = world.token("ann");
    let callers = futures_util::future::join_all((0..16).map(|_| world.who(&token))).await;
    let first = user_of(callers[0].as_ref().unwrap());
    assert!(callers.iter().all(|c| user_of(c.as_ref().unwrap()) == first));
    for table in ["users", "organizations", "projects", "account_sessions"] {
        assert_eq!(count(&world.db, &format!("SELECT count(*) FROM {table}")).await, 1, "{table}");
    }
}

const ADMINS: &str = "SELECT count(*) FROM platform_bindings";

#[tokio::test]
async fn the_first_with_the_chosen_address_administers_the_platform_and_nobody_after_them() {
    let world = World::start_with_first_admin("Ann@example.org").await;
    assert!(!world.is_admin(&world.token("bob")).await, "another address");
    let token = world.token("ann");
    let callers = futures_util::future::join_all((0..8).map(|_| world.is_admin(&token))).await;
    assert!(callers.iter().all(|admin| *admin), "{callers:?}");
    assert_eq!(count(&world.db, ADMINS).await, 1);
    let audited = "SELECT count(*) FROM audit_logs WHERE action = 'platform.admin.seed'";
    assert_eq!(count(&world.db, audited).await, 1);
    let told = "SELECT count(*) FROM outbox_events WHERE event_type = 'identity.user.platform_roles_changed'";
    assert_eq!(count(&world.db, told).await, 1);
    assert_eq!(count(&world.db, "SELECT count(*) FROM organizations").await, 2, "one for each of them");

    let second = world.with(|c| {
        c["sub"] = json!("eve");
        c["sid"] = json!("sid-eve");
    });
    assert!(!world.is_admin(&second).await, "the same address, but somebody administers already");
    assert_eq!(count(&world.db, ADMINS).await, 1);
}

#[tokio::test]
async fn an_address_that_nobody_verified_gives_no_platform_role() {
    let world = World::start_with_first_admin("ann@example.org").await;
    for (n, verified) in [json!(false), json!("false"), Value::Null].into_iter().enumerate() {
        let token = world.with(|c| {
            c["email_verified"] = verified.clone();
            c["sid"] = json!(format!("sid-{n}"));
        });
        assert!(!world.is_admin(&token).await, "{verified}");
    }
    assert_eq!(count(&world.db, ADMINS).await, 0);
    // Known by now, and at last with an address that is theirs.
    assert!(world.is_admin(&world.token("ann")).await);
    assert_eq!(count(&world.db, "SELECT count(*) FROM users").await, 1);
}

#[tokio::test]
async fn without_a_chosen_address_nobody_becomes_an_administrator_by_signing_in() {
    let world = World::start().await;
    assert!(!world.is_admin(&world.token("ann")).await);
    assert_eq!(count(&world.db, ADMINS).await, 0);
}

#[tokio::test]
async fn a_local_account_with_the_chosen_address_is_no_administrator() {
    let mut kit = crate::kit::Kit::start().await;
    let email = kernel::text::Email::parse("ann@example.org").unwrap();
    kit.authn = Authn::with_first_admin(kit.db.db.clone(), vec![kit.issuer.trusted()], Some(email));
    let mut browser = testkit::Browser::default();
    kit.sign_up(&mut browser, "ann@example.org").await;
    let tokens = kit.tokens(&mut browser, "ann").await;
    assert!(kit.who(&tokens["access_token"]).await.is_ok());
    assert_eq!(kit.count(ADMINS).await, 0);
}

#[tokio::test]
async fn people_of_two_issuers_with_one_subject_are_two_people() {
    let world = World::start().await;
    let other = Idp::start().await;
    let issuers = vec![world.idp.trusted(&world.ambient), other.trusted(&world.ambient)];
    let authn = Authn::new(world.db.db.clone(), issuers);
    let here = who(&authn, &world.token("ann")).await.unwrap();
    let there = who(&authn, &other.key.sign(&other.claims("ann", world.ambient.now()))).await.unwrap();
    assert_ne!(user_of(&here), user_of(&there));
    let crossed = other.key.sign(&world.claims("ann"));
    assert_eq!(who(&authn, &crossed).await.unwrap_err(), Code::TokenInvalid, "signed by the other issuer");
}

#[tokio::test]
async fn keys_outlive_an_outage_of_the_issuer() {
    let world = World::start().await;
    assert!(world.who(&world.token("ann")).await.is_ok());
    world.idp.state.down.store(true, Ordering::SeqCst);
    for _ in 0..3 {
        world.advance(7200);
        assert!(world.who(&world.token("ann")).await.is_ok(), "a new token, verified with the keys we have");
    }
    assert!(world.idp.fetched() > 1, "it did try");
}

#[tokio::test]
async fn without_any_keys_an_outage_is_not_the_callers_fault() {
    let world = World::start().await;
    world.idp.state.down.store(true, Ordering::SeqCst);
    assert_eq!(world.who(&world.token("ann")).await.unwrap_err(), Code::UpstreamError);
    world.idp.state.down.store(false, Ordering::SeqCst);
    world.advance(10);
    assert!(world.who(&world.token("ann")).await.is_ok());
}

#[tokio::test]
async fn an_unknown_key_is_looked_for_at_once_but_not_more_often_than_every_ten_seconds() {
    let world = World::start().await;
    assert!(world.who(&world.token("ann")).await.is_ok());
    assert_eq!(world.idp.fetched(), 1);
    let next = SigningKey::new("k2");
    let token = next.sign(&world.claims("ann"));
    for _ in 0..5 {
        assert_eq!(world.who(&token).await.unwrap_err(), Code::TokenInvalid);
    }
    assert_eq!(world.idp.fetched(), 1, "the floor holds");
    world.idp.state.keys.lock().unwrap().push(next.jwk());
    world.advance(10);
    let looks = futures_util::future::join_all((0..8).map(|_| world.who(&token))).await;
    assert!(looks.iter().all(Result::is_ok));
    assert_eq!(world.idp.fetched(), 2, "one of them fetched, the others waited for it");
}

#[tokio::test]
async fn keys_are_refreshed_behind_requests_after_five_minutes() {
    let world = World::start().await;
    assert!(world.who(&world.token("ann")).await.is_ok());
    world.advance(299);
    assert!(world.who(&world.token("bob")).await.is_ok());
    assert_eq!(world.idp.fetched(), 1);
    world.advance(1);
    assert!(world.who(&world.token("cid")).await.is_ok());
    eventually("the keys are fetched again", || async { (world.idp.fetched() == 2).then_some(()) }).await;
}

#[tokio::test]
async fn tokens_whose_algorithm_is_confused_are_refused() {
    let world = World::start().await;
    assert!(world.who(&world.token("ann")).await.is_ok());
    let claims = world.claims("ann");
    let header = |alg| Header { kid: Some("k1".to_owned()), ..Header::new(alg) };
    let point = &world.idp.key.point;
    let jwk = world.idp.key.jwk();
    let secrets = [
        point.clone(),
        point[1..].to_vec(),
        jwk["x"].as_str().unwrap().as_bytes().to_vec(),
        jwk.to_string().into_bytes(),
    ];
    for secret in secrets {
        for alg in [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512] {
            let forged =
                jsonwebtoken::encode(&header(alg), &claims, &EncodingKey::from_secret(&secret)).unwrap();
            assert_eq!(world.who(&forged).await.unwrap_err(), Code::TokenInvalid, "{alg:?}");
        }
    }
    let real = world.token("ann");
    let parts: Vec<&str> = real.split('.').collect();
    let encode = |text: &str| base64::Engine::encode(&base64::prelude::BASE64_URL_SAFE_NO_PAD, text);
    for head in [
        r#"{"alg":"none","kid":"k1"}"#,
        r#"{"alg":"RS256","kid":"k1"}"#,
        r#"{"alg":"ES384","kid":"k1"}"#,
        r#"{"alg":"None"}"#,
    ] {
        for signature in ["", parts[2]] {
            let forged = format!("{}.{}.{signature}", encode(head), parts[1]);
            assert_eq!(world.who(&forged).await.unwrap_err(), Code::TokenInvalid, "{head}");
        }
    }
    let tampered = format!("{}.{}.{}", parts[0], encode(&claims.to_string().replace("ann", "bob")), parts[2]);
    assert_eq!(world.who(&tampered).await.unwrap_err(), Code::TokenInvalid);
    for garbage in ["", ".", "..", "a.b.c", "....", &"x".repeat(20_000)] {
        assert_eq!(world.who(garbage).await.unwrap_err(), Code::TokenInvalid);
    }
}

#[tokio::test]
async fn time_audience_and_issuer_are_checked_with_thirty_seconds_of_leeway() {
    let world = World::start().await;
    let now = world.ambient.now().timestamp();
    for (token, expected) in [
        (world.with(|c| c["exp"] = json!(now - 29)), Ok(())),
        (world.with(|c| c["exp"] = json!(now - 31)), Err(Code::TokenExpired)),
        (world.with(|c| c["nbf"] = json!(now + 29)), Ok(())),
        (world.with(|c| c["nbf"] = json!(now + 31)), Err(Code::TokenInvalid)),
        (world.with(|c| c["aud"] = json!("somebody else")), Err(Code::TokenInvalid)),
        (world.with(|c| c["aud"] = json!(crate::kit::AUDIENCE)), Ok(())),
        (world.with(|c| c["iss"] = json!("https://evil.example")), Err(Code::TokenInvalid)),
        (world.with(|c| c["sub"] = json!("")), Err(Code::TokenInvalid)),
        (world.with(|c| drop(c.as_object_mut().unwrap().remove("exp"))), Err(Code::TokenInvalid)),
        (world.with(|c| c["exp"] = json!(1e300)), Err(Code::TokenInvalid)),
    ] {
        assert_eq!(world.who(&token).await.map(|_| ()), expected, "{}", crate::kit::claims(&json!(token)));
    }
}

#[tokio::test]
async fn a_verified_token_is_not_believed_beyond_its_expiry() {
    let world = World::start().await;
    let token = world.token("ann");
    assert!(world.who(&token).await.is_ok());
    world.advance(3629);
    assert!(world.who(&token).await.is_ok());
    world.advance(1);
    assert_eq!(world.who(&token).await.unwrap_err(), Code::TokenExpired);
}

#[tokio::test]
async fn an_external_issuer_cannot_speak_for_a_service_account() {
    let world = World::start().await;
    let token = world.with(|c| c["gpuaas_key"] = json!(format!("sak_{}", "0".repeat(32))));
    assert!(matches!(world.who(&token).await, Ok(Caller::User { .. })));
}

#[tokio::test]
async fn a_session_named_by_somebody_elses_sid_is_refused() {
    let world = World::start().await;
    assert!(world.who(&world.token("ann")).await.is_ok());
    let mut claims = world.claims("bob");
    claims["sid"] = json!("sid-ann");
    assert_eq!(world.who(&world.idp.key.sign(&claims)).await.unwrap_err(), Code::TokenInvalid);
}

#[tokio::test]
async fn a_revoked_session_is_refused_within_three_seconds_on_every_replica_without_notifications() {
    let world = World::start().await;
    let other_db = pg::Db::new(world.db.connect.clone(), 4, 4, world.ambient.clone());
    let other = Authn::new(other_db, vec![world.idp.trusted(&world.ambient)]);
    let token = world.token("ann");
    assert!(world.who(&token).await.is_ok());
    assert!(who(&other, &token).await.is_ok());
    sql(&world.db, "UPDATE account_sessions SET revoked_at = now()").await;
    assert!(world.who(&token).await.is_ok(), "remembered for the moment");
    world.advance(3);
    assert_eq!(world.who(&token).await.unwrap_err(), Code::TokenRevoked);
    assert_eq!(who(&other, &token).await.unwrap_err(), Code::TokenRevoked);
    let elsewhere = world.with(|c| c["sid"] = json!("another"));
    assert!(world.who(&elsewhere).await.is_ok(), "other sessions live on");
}

#[tokio::test]
async fn a_notification_makes_a_revocation_effective_at_once_on_another_replica() {
    let world = World::start().await;
    let other_db = pg::Db::new(world.db.connect.clone(), 4, 4, world.ambient.clone());
    let (_wake, listening) = other_db.listen();
    let other = Authn::new(other_db, vec![world.idp.trusted(&world.ambient)]);
    let token = world.token("ann");
    let Ok(Caller::User { session, .. }) = who(&other, &token).await else { panic!("a person") };
    sql(&world.db, "UPDATE account_sessions SET revoked_at = now()").await;
    // The clock stands still, so only the notification can do it; it is repeated until the listener is up.
    eventually("the other replica refuses", || async {
        sql(&world.db, &format!("SELECT pg_notify('gpuaas_invalidate', 'session:{}')", session.uuid())).await;
        (who(&other, &token).await.err() == Some(Code::TokenRevoked)).then_some(())
    })
    .await;
    listening.abort();
}

#[tokio::test]
async fn roles_and_suspension_are_read_again_after_three_seconds() {
    let world = World::start().await;
    let token = world.token("ann");
    assert!(world.who(&token).await.is_ok());
    sql(
        &world.db,
        "UPDATE organizations SET suspended_at = now(), suspended_reason = 'unpaid';
                    INSERT INTO platform_bindings SELECT id, 'platform_ops', now() FROM users",
    )
    .await;
    world.advance(3);
    let Ok(Caller::User { grants, .. }) = world.who(&token).await else { panic!("a person") };
    assert!(grants.orgs.values().all(|org| org.suspended), "still authenticated, but marked");
    assert_eq!(grants.platform, [kernel::Role::PlatformOps]);
}

#[tokio::test]
async fn the_use_of_a_session_is_noted_at_most_once_a_minute() {
    let world = World::start().await;
    let token = world.token("ann");
    let seen = "SELECT count(*) FROM account_sessions WHERE last_seen_at > created_at";
    assert!(world.who(&token).await.is_ok());
    world.advance(59);
    assert!(world.who(&token).await.is_ok());
    assert_eq!(count(&world.db, seen).await, 0);
    world.advance(1);
    assert!(world.who(&token).await.is_ok());
    eventually("the use is noted", || async { (count(&world.db, seen).await == 1).then_some(()) }).await;
}
