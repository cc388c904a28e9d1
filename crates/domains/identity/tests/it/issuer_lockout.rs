//! Ending everything that is signed in, also against what is under way; and who must not be locked out.

use crate::kit::{Kit, PASSWORD, sql};
use kernel::{Code, Failure, ids::LocalAccountId};
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
    // Somebody else's reset, right after the guess was counted.
    sql(
        &kit.db,
        "CREATE FUNCTION reset_meanwhile() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN UPDATE local_accounts SET version = version + 1 WHERE id = NEW.account_id; RETURN NULL; END $$;
         CREATE TRIGGER reset_meanwhile AFTER INSERT ON issuer_guesses FOR EACH ROW EXECUTE FUNCTION reset_meanwhile()",
    )
    .await;
    assert_eq!(kit.sign_in(&mut Browser::default(), "ann@example.org", PASSWORD).await.status, 401);
    sql(&kit.db, "DROP TRIGGER reset_meanwhile ON issuer_guesses").await;
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
    assert_eq!(kit.count(&named).await, 6, "also while the address has to wait");
    let nobody = "SELECT count(*) FROM audit_logs
                  WHERE action = 'auth.sign_in' AND result = 'refused' AND target_id IS NULL";
    assert_eq!(kit.count(nobody).await, 1);
}

const STRANGER: &str = "127.0.0.66";

#[tokio::test]
async fn wrong_passwords_of_a_stranger_keep_nobody_else_out() {
    let kit = Kit::start().await;
    let mut signed_in = Browser::default();
    kit.sign_up(&mut signed_in, "ann@example.org").await;
    for _ in 0..10 {
        let page = kit.sign_in(&mut Browser::at_address(STRANGER), "ann@example.org", "wrong").await;
        assert_eq!(page.status, 401);
    }
    let theirs = kit.sign_in(&mut Browser::at_address(STRANGER), "ann@example.org", PASSWORD).await;
    assert_eq!(theirs.status, 401, "the stranger has to wait, even with the right password");
    let own = kit.sign_in(&mut Browser::at_address("127.0.0.3"), "ann@example.org", PASSWORD).await;
    assert_eq!(own.status, 200, "the account is not locked");
    assert_eq!(signed_in.open(kit.url("/auth/device"), None).await.url.path(), "/auth/device");
}

#[tokio::test]
async fn a_device_that_is_signed_in_is_not_affected_by_guesses_from_its_own_address() {
    let twenty = std::num::NonZeroU32::new(20).unwrap();
    let kit = Kit::start_with(|mut config| {
        config.rates.sign_in = twenty;
        config
    })
    .await;
    let mut signed_in = Browser::default();
    kit.sign_up(&mut signed_in, "ann@example.org").await;
    let tokens = kit.tokens(&mut signed_in, "x").await;
    for _ in 0..25 {
        kit.sign_in(&mut Browser::default(), "ann@example.org", "wrong").await;
    }
    assert_eq!(kit.sign_in(&mut Browser::default(), "ann@example.org", PASSWORD).await.status, 429);
    assert_eq!(kit.refresh(&tokens["refresh_token"]).await.0, 200);
    let page = signed_in.open(kit.url("/auth/password"), None).await;
    let new = "another long password";
    let fields = [("current", PASSWORD), ("new", new), ("again", new)];
    let page = signed_in.submit(&page, "/auth/password", &fields, None).await;
    assert!(page.html.contains("You are signed in"), "{} {}", page.status, page.html);
}

#[tokio::test]
async fn a_stolen_browser_cannot_guess_the_password_for_ever() {
    let kit = Kit::start().await;
    let mut signed_in = Browser::default();
    kit.sign_up(&mut signed_in, "ann@example.org").await;
    let new = "another long password";
    let change = async |browser: &mut Browser, current: &str| {
        let page = browser.open(kit.url("/auth/password"), None).await;
        let fields = [("current", current), ("new", new), ("again", new)];
        browser.submit(&page, "/auth/password", &fields, None).await.status
    };
    for _ in 0..5 {
        assert_eq!(change(&mut signed_in, "wrong").await, 400);
    }
    assert_eq!(change(&mut signed_in, PASSWORD).await, 400, "too soon");
    let elsewhere = kit.sign_in(&mut Browser::default(), "ann@example.org", PASSWORD).await;
    assert_eq!(elsewhere.status, 200, "signing in is another matter");
    kit.guesses_age(900).await;
    assert_eq!(change(&mut signed_in, PASSWORD).await, 200);
}

#[tokio::test]
async fn an_address_that_tries_many_accounts_has_to_wait_and_others_do_not() {
    let kit = Kit::start().await;
    kit.db.set_global_policy("identity.sign_in_attempts_per_address", "8").await;
    kit.sign_up(&mut Browser::default(), "ann@example.org").await;
    for n in 0..8 {
        kit.sign_in(&mut Browser::at_address(STRANGER), &format!("user{n}@example.org"), "wrong").await;
    }
    let blocked = kit.sign_in(&mut Browser::at_address(STRANGER), "ann@example.org", PASSWORD).await;
    assert_eq!(blocked.status, 401);
    assert_eq!(kit.sign_in(&mut Browser::default(), "ann@example.org", PASSWORD).await.status, 200);
    kit.guesses_age(900).await;
    let later = kit.sign_in(&mut Browser::at_address(STRANGER), "ann@example.org", PASSWORD).await;
    assert_eq!(later.status, 200);
}

#[tokio::test]
async fn strangers_write_a_bounded_number_of_audit_rows_from_however_many_addresses() {
    let kit = Kit::start().await;
    kit.db.set_global_policy("identity.refusals_audited_per_minute", "5").await;
    for n in 0..20 {
        let mut browser = Browser::at_address(&format!("127.0.1.{n}"));
        assert_eq!(kit.sign_in(&mut browser, "ann@example.org", "wrong").await.status, 401);
    }
    let refused = "SELECT count(*) FROM audit_logs WHERE action = 'auth.sign_in' AND result = 'refused'";
    assert_eq!(kit.count(refused).await, 5);
    kit.guesses_age(60).await;
    kit.sign_in(&mut Browser::default(), "ann@example.org", "wrong").await;
    assert_eq!(kit.count(refused).await, 6, "there is room again");
}

#[tokio::test]
async fn the_password_of_somebody_who_may_approve_is_not_reset_by_another() {
    let kit = Kit::start().await;
    for name in ["ann", "bob"] {
        kit.sign_up(&mut Browser::default(), &format!("{name}@example.org")).await;
    }
    let bind = "INSERT INTO platform_bindings SELECT id, 'platform_admin', now() FROM users WHERE email = 'bob@example.org'";
    sql(&kit.db, bind).await;
    let bob = account(&kit, "bob@example.org").await;
    let refused = kit.issuer.reset_password(&mut write(&kit).await, bob).await.unwrap_err();
    assert!(format!("{refused:?}").contains("administrator who may approve"), "{refused:?}");
    assert_eq!(
        kit.sign_in(&mut Browser::default(), "bob@example.org", crate::kit::PASSWORD).await.status,
        200
    );
    // Without the role it can be reset; giving the role back takes two people.
    sql(&kit.db, "DELETE FROM platform_bindings").await;
    kit.issuer.reset_password(&mut write(&kit).await, bob).await.unwrap();
}

#[tokio::test]
async fn a_process_with_a_wrong_clock_neither_opens_nor_closes_a_budget() {
    let kit = Kit::start().await;
    kit.sign_up(&mut Browser::default(), "ann@example.org").await;
    let sign_in =
        async |password: &str| kit.sign_in(&mut Browser::default(), "ann@example.org", password).await.status;
    // A wrong password in a process whose clock is a day ahead costs what it costs everywhere.
    kit.advance(86_400);
    assert_eq!(sign_in("wrong").await, 401);
    kit.advance(-86_400);
    assert_eq!(sign_in(PASSWORD).await, 200, "nobody waits for a day");
    for _ in 0..5 {
        assert_eq!(sign_in("wrong").await, 401);
    }
    // Nor does such a process let anybody guess on, or forget who has to wait.
    kit.advance(86_400);
    assert_eq!(sign_in(PASSWORD).await, 401);
    kit.issuer.tidy().await.unwrap();
    assert_eq!(sign_in(PASSWORD).await, 401);
    kit.guesses_age(900).await;
    assert_eq!(sign_in(PASSWORD).await, 200);
}
