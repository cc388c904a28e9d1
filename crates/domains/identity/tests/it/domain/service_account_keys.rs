use identity::service::service_accounts::{
    NewAccount, service_account_create, service_account_key_create, service_account_key_revoke,
};
use kernel::{
    Code, Failure,
    policy::{PolicyKey as _, keys},
    text::Name,
};

use super::world::World;

#[tokio::test]
async fn an_account_has_no_more_live_keys_than_the_policy_allows() {
    let world = World::new().await;
    let owner = world.user("owner").await;
    let org = world.org("acme", owner).await.id;
    let project = world.project(owner, org, "bots").await.id;
    let two = keys::KEYS_PER_SERVICE_ACCOUNT.read(&2.into());
    let mut tx = world.write_in(owner, org, "service_account.create").await;
    let account =
        service_account_create(&mut tx, org, project, NewAccount::reader(Name::parse("bot").unwrap()))
            .await
            .unwrap();
    let first = service_account_key_create(&mut tx, (org, project), account.id, None, two).await.unwrap();
    service_account_key_create(&mut tx, (org, project), account.id, None, two).await.unwrap();
    let third = service_account_key_create(&mut tx, (org, project), account.id, None, two).await;
    assert!(matches!(third, Err(Failure::Problem(p)) if p.code == Code::QuotaExceeded));
    service_account_key_revoke(&mut tx, project, account.id, first.0.id).await.unwrap();
    assert!(service_account_key_create(&mut tx, (org, project), account.id, None, two).await.is_ok());
}
