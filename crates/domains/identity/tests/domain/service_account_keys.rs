use identity::service::service_accounts::{
    AccountChange, service_account_create, service_account_key_check, service_account_key_create,
    service_account_key_revoke, service_account_update,
};
use kernel::{
    Code, Failure,
    policy::{IntegerKey, keys},
    text::Name,
};

use crate::world::World;

#[tokio::test]
async fn a_key_works_until_it_is_revoked_expired_or_its_account_disabled() {
    let world = World::new().await;
    let owner = world.user("owner").await;
    let org = world.org("acme", owner).await.id;
    let project = world.project(owner, org, "bots").await.id;
    let limit = IntegerKey(&keys::KEYS_PER_SERVICE_ACCOUNT).default_setting();
    let now = world.db().ambient().now();

    let mut tx = world.write_in(owner, org, "service_account.create").await;
    let account = service_account_create(&mut tx, org, project, Name::parse("bot").unwrap()).await.unwrap();
    let mut secrets = Vec::new();
    for days in [None, Some(1), None] {
        secrets.push(
            service_account_key_create(&mut tx, (org, project), account.id, days, limit).await.unwrap(),
        );
    }
    tx.commit(None).await.unwrap();
    let check = async |presented: &str, at| {
        let mut read = world.read_system().await;
        service_account_key_check(read.conn(), presented, at).await.unwrap()
    };

    let (key, secret) = &secrets[0];
    let known = check(secret.expose(), now).await.expect("a fresh key works");
    assert_eq!(
        (known.key_id, known.account_id, known.org_id, known.project_id),
        (key.id, account.id, org, project)
    );
    let mut wrong = secret.expose().clone();
    let last = if wrong.ends_with('A') { 'E' } else { 'A' };
    wrong.pop();
    wrong.push(last);
    assert_eq!(check(&wrong, now).await, None, "the id is right, the secret is not");
    let mixed = format!("{}{}", &secret.expose()[..43], &secrets[2].1.expose()[43..]);
    assert_eq!(check(&mixed, now).await, None, "the secret of another key");

    let expiring = secrets[1].1.expose();
    assert!(check(expiring, now).await.is_some());
    assert_eq!(check(expiring, now + chrono::TimeDelta::days(2)).await, None);

    let mut tx = world.write_in(owner, org, "service_account_key.revoke").await;
    service_account_key_revoke(&mut tx, project, account.id, key.id).await.unwrap();
    tx.commit(None).await.unwrap();
    assert_eq!(check(secret.expose(), now).await, None);
    assert!(check(secrets[2].1.expose(), now).await.is_some(), "the other key overlaps");

    let mut tx = world.write_in(owner, org, "service_account.update").await;
    let off = AccountChange { disabled: Some(true), ..AccountChange::default() };
    let account = service_account_update(&mut tx, project, account.id, off, Some(1)).await.unwrap();
    tx.commit(None).await.unwrap();
    assert_eq!((account.state.as_str(), account.version), ("disabled", 2));
    assert_eq!(check(secrets[2].1.expose(), now).await, None);
}

#[tokio::test]
async fn an_account_has_no_more_live_keys_than_the_policy_allows() {
    let world = World::new().await;
    let owner = world.user("owner").await;
    let org = world.org("acme", owner).await.id;
    let project = world.project(owner, org, "bots").await.id;
    let two = IntegerKey(&keys::KEYS_PER_SERVICE_ACCOUNT).read(&2.into());
    let mut tx = world.write_in(owner, org, "service_account.create").await;
    let account = service_account_create(&mut tx, org, project, Name::parse("bot").unwrap()).await.unwrap();
    let first = service_account_key_create(&mut tx, (org, project), account.id, None, two).await.unwrap();
    service_account_key_create(&mut tx, (org, project), account.id, None, two).await.unwrap();
    let third = service_account_key_create(&mut tx, (org, project), account.id, None, two).await;
    assert!(matches!(third, Err(Failure::Problem(p)) if p.code == Code::QuotaExceeded));
    service_account_key_revoke(&mut tx, project, account.id, first.0.id).await.unwrap();
    assert!(service_account_key_create(&mut tx, (org, project), account.id, None, two).await.is_ok());
}
