//! Issuers that do not name sessions, and addresses that they do not vouch for.

use std::sync::Arc;

use crate::kit::{Idp, ambient, count, sql, who};
use endpoint::Caller;
use identity::authn::Authn;
use kernel::{Ambient, Code, ManualClock};
use serde_json::{Value, json};
use testkit::TestDb;

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

    fn with(&self, change: impl FnOnce(&mut Value)) -> String {
        let mut claims = self.idp.claims("ann", self.ambient.now());
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

const SESSIONS: &str = "SELECT count(*) FROM account_sessions";

#[tokio::test]
async fn an_issuer_that_names_no_sessions_gets_one_for_each_sign_in_and_not_for_each_refresh() {
    let world = World::start().await;
    let token = || {
        world.with(|c| {
            c.as_object_mut().unwrap().remove("sid");
        })
    };
    world.who(&token()).await.unwrap();
    for _ in 0..5 {
        world.advance(1800);
        world.who(&token()).await.unwrap();
    }
    assert_eq!(count(&world.db, SESSIONS).await, 1, "refreshed tokens belong to the same session");

    sql(&world.db, &format!("UPDATE account_sessions SET revoked_at = '{}'", world.ambient.now())).await;
    for _ in 0..30 {
        world.advance(3600);
        assert_eq!(world.who(&token()).await.unwrap_err(), Code::TokenRevoked, "whoever goes on refreshing");
    }
    world.advance(24 * 3600);
    assert!(world.who(&token()).await.is_ok(), "somebody signs in again");
    assert_eq!(count(&world.db, SESSIONS).await, 1);

    let signed_out = token();
    let ended =
        format!("UPDATE account_sessions SET revoked_at = '{}', ended_by_itself = true", world.ambient.now());
    sql(&world.db, &ended).await;
    world.advance(4);
    assert_eq!(world.who(&signed_out).await.unwrap_err(), Code::TokenRevoked);
    assert!(world.who(&token()).await.is_ok(), "who signed out signs in again at once");
    let with_time = world.with(|c| {
        c.as_object_mut().unwrap().remove("sid");
        c["auth_time"] = json!(world.ambient.now().timestamp());
    });
    assert!(world.who(&with_time).await.is_ok());
    assert_eq!(count(&world.db, SESSIONS).await, 2, "a sign-in that is told apart is its own session");
}

#[tokio::test]
async fn an_address_that_the_issuer_says_nothing_about_is_not_believed() {
    let world = World::start().await;
    let silent = world.with(|c| {
        c.as_object_mut().unwrap().remove("email_verified");
    });
    world.who(&silent).await.unwrap();
    assert_eq!(count(&world.db, "SELECT count(*) FROM users WHERE email IS NULL").await, 1);
}
