//! Ending everything that is signed in, also against what is under way; and who must not be locked out.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod kit;

use kernel::{Code, Failure, ids::LocalAccountId};
use kit::{Kit, PASSWORD, sql};
use serde_json::json;
use testkit::Browser;

async fn write(kit: &Kit) -> pg::WriteTx {
    let origin = pg::Origin::internal(kernel::CorrelationId(kit.db.db.ambient().uuid()));
    kit.db.db.write(pg::Permit::system("test", origin), "test.account").await.unwrap()
}

async fn account(kit: &Kit, email: &str) -> LocalAccountId {
    let mut conn = kit.db.conn(pg::Roles::Admin).await;
    let id: uuid::Uuid = sqlx::query_scalar("SELECT id FROM local_accounts WHERE email = $1")
        .bind(email)
        .fetch_one(&mut conn)
        .await
        .unwrap();
    id.into()
}

async fn somebody_waits_for_a_lock(kit: &Kit) {
    let waiting = "SELECT count(*) FROM pg_stat_activity
                   WHERE datname = current_database() AND wait_event_type = 'Lock'";
    testkit::eventually("a transaction waits", || async { (kit.count(waiting).await > 0).then_some(()) })
        .await;
}

#[tokio::test]
async fn a_code_from_before_a_reset_is_worth_nothing_after_it() {
    let kit = Kit::start().await;
    let mut browser = Browser::default();
    kit.sign_up(&mut browser, "ann@example.org").await;
    let (code, verifier) = kit.code(&mut browser, "x").await;
    let mut tx = write(&kit).await;
    kit.issuer.reset_password(&mut tx, account(&kit, "ann@example.org").await).await.unwrap();
    tx.commit(None).await.unwrap();
    // Even for somebody who would be let in again at once.
    sql(&kit.db, "UPDATE local_accounts SET must_change_password = false").await;
    let (status, answer) = kit.exchange(&code, &verifier).await;
    assert_eq!((status, &answer["error"]), (400, &json!("invalid_grant")));
}

#[tokio::test]
async fn an_exchange_that_meets_the_end_of_everything_leaves_no_session() {
    let kit = Kit::start().await;
    let mut browser = Browser::default();
    kit.sign_up(&mut browser, "ann@example.org").await;
    let (code, verifier) = kit.code(&mut browser, "x").await;
    let mut tx = write(&kit).await;
    kit.issuer.set_account_disabled(&mut tx, account(&kit, "ann@example.org").await, true).await.unwrap();
    let commit_when_waited_for = async {
        somebody_waits_for_a_lock(&kit).await;
        tx.commit(None).await.unwrap();
    };
    let ((status, _), ()) = tokio::join!(kit.exchange(&code, &verifier), commit_when_waited_for);
    assert_eq!(status, 400);
    assert_eq!(kit.count("SELECT count(*) FROM account_sessions").await, 0);
}

#[tokio::test]
async fn a_password_that_is_replaced_while_it_is_checked_lets_nobody_in() {
    let kit = Kit::start().await;
    kit.sign_up(&mut Browser::default(), "ann@example.org").await;
    // Somebody else's reset, right after the attempt was counted.
    sql(
        &kit.db,
        "CREATE FUNCTION reset_meanwhile() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN UPDATE local_accounts SET version = version + 1 WHERE id = NEW.id; RETURN NULL; END $$;
         CREATE TRIGGER reset_meanwhile AFTER UPDATE OF failed_attempts ON local_accounts FOR EACH ROW
            WHEN (NEW.failed_attempts > OLD.failed_attempts) EXECUTE FUNCTION reset_meanwhile()",
    )
    .await;
    assert_eq!(kit.sign_in(&mut Browser::default(), "ann@example.org", PASSWORD).await.status, 401);
    sql(&kit.db, "DROP TRIGGER reset_meanwhile ON local_accounts").await;
    assert_eq!(kit.sign_in(&mut Browser::default(), "ann@example.org", PASSWORD).await.status, 200);
}

#[tokio::test]
async fn the_only_administrator_who_can_sign_in_cannot_be_disabled() {
    let kit = Kit::start().await;
    for email in ["ann@example.org", "bob@example.org", "eve@example.org"] {
        kit.sign_up(&mut Browser::default(), email).await;
    }
    sql(
        &kit.db,
        "INSERT INTO platform_bindings SELECT id, 'platform_admin', now() FROM users WHERE email <> 'eve@example.org'",
    )
    .await;
    let disable = async |email: &str| {
        let mut tx = write(&kit).await;
        kit.issuer.set_account_disabled(&mut tx, account(&kit, email).await, true).await?;
        tx.commit(None).await?;
        Ok::<_, Failure>(())
    };
    let (ann, bob) = tokio::join!(disable("ann@example.org"), disable("bob@example.org"));
    let refused: Vec<_> = [ann, bob].into_iter().filter_map(Result::err).collect();
    assert!(matches!(&refused[..], [Failure::Problem(p)] if p.code == Code::InUse), "{refused:?}");
    assert_eq!(kit.count("SELECT count(*) FROM local_accounts WHERE disabled_at IS NULL").await, 2);
    disable("eve@example.org").await.unwrap();
}

#[tokio::test]
async fn a_refused_sign_in_names_the_account_it_was_for() {
    let kit = Kit::start().await;
    kit.sign_up(&mut Browser::default(), "ann@example.org").await;
    let id = account(&kit, "ann@example.org").await;
    for _ in 0..6 {
        kit.sign_in(&mut Browser::default(), "ann@example.org", "wrong").await;
    }
    kit.sign_in(&mut Browser::default(), "nobody@example.org", "wrong").await;
    let named = format!(
        "SELECT count(*) FROM audit_logs WHERE action = 'auth.sign_in' AND result = 'refused'
         AND target_kind = 'local_account' AND target_id = '{id}'"
    );
    assert_eq!(kit.count(&named).await, 6, "also while it is locked");
    let nobody = "SELECT count(*) FROM audit_logs
                  WHERE action = 'auth.sign_in' AND result = 'refused' AND target_id IS NULL";
    assert_eq!(kit.count(nobody).await, 1);
}
