//! Work orders: what was sealed is what is signed, and nothing else is.

use chrono::{DateTime, TimeDelta, Utc};
use fleet::{
    Fleet,
    api::{OrderedRequest, OrderedWork, TaskRequest},
    service::dispatch::{self, Ask},
};
use kernel::{
    Code, Failure, Permission, Role,
    ids::{NodeId, TaskId},
};
use node_proto::{
    Task, TaskKind,
    catalog::{
        AccountSpec, DeprovisionUser, DeprovisionUserInput, InstallAuthorizedKeys, Isolation, ProvisionUser,
        ProvisionUserInput, Reboot, RebootInput,
    },
};
use pg::{Actor, ActorKind, Permit, Scope};
use serde_json::json;

use super::kit::{GOOD_FOR, Kit};

const SUBJECT: &str = "alloc_one";

fn account() -> AccountSpec {
    AccountSpec { username: "u1".to_owned(), uid: 20_001, gid: 20_001 }
}

fn provision() -> ProvisionUserInput {
    ProvisionUserInput {
        account: account(),
        owner: SUBJECT.to_owned(),
        shell: "/bin/bash".to_owned(),
        authorized_keys: vec!["ssh-ed25519 AAAA one".to_owned()],
        limits: Default::default(),
        isolation: Isolation::FullReimage,
    }
}

fn deprovision() -> DeprovisionUserInput {
    DeprovisionUserInput { account: account(), owner: SUBJECT.to_owned() }
}

fn work(until: DateTime<Utc>) -> Vec<OrderedWork> {
    vec![
        OrderedWork::from_input::<ProvisionUser>(&provision()).unwrap().until(until),
        OrderedWork::from_input::<DeprovisionUser>(&deprovision()).unwrap(),
    ]
}

fn permit(kit: &Kit, kind: ActorKind) -> Permit {
    let actor = Actor { kind, id: Some(kit.test.db.ambient().uuid()), role: "member" };
    let granted = Role::PlatformOps.permissions().authorize(Permission::FleetManage).unwrap();
    Permit::granted(actor, Scope::Platform, kit.origin(), granted)
}

async fn seal(kit: &Kit, fleet: &Fleet, kind: ActorKind, node: NodeId) -> Result<Vec<u8>, Failure> {
    let tx = kit.test.db.write(permit(kit, kind), "test.seal").await.unwrap();
    fleet.order_seal(&tx, SUBJECT, node, work(kit.test.db.ambient().now() + TimeDelta::days(1)))
}

async fn sealed(kit: &Kit, node: NodeId) -> Vec<u8> {
    seal(kit, &kit.fleet, ActorKind::User, node).await.unwrap()
}

fn request() -> OrderedRequest {
    OrderedRequest { attempt: 1, good_for: GOOD_FOR, waiting: None }
}

/// As a workflow does it: nobody's request, only what lies in the database.
async fn queue<K: TaskKind>(kit: &Kit, order: &[u8], subject: &str) -> Result<TaskId, Code> {
    let mut tx = kit.write().await;
    match kit.fleet.task_queue_ordered::<K>(&mut tx, order, subject, request()).await {
        Ok(task) => {
            tx.commit(None).await.unwrap();
            Ok(task)
        }
        Err(Failure::Problem(problem)) => Err(problem.code),
        Err(other) => panic!("{other:?}"),
    }
}

async fn delivered(kit: &Kit, node: NodeId) -> Vec<Task> {
    let claimed = dispatch::tasks_lease(&kit.fleet, &[Ask { node, room: 16, holding: None }]).await.unwrap();
    let (keyset, _) = kit.fleet.trust().keyset().await.unwrap();
    let signed = dispatch::checked(&kit.fleet, node, claimed).await.unwrap();
    signed.iter().map(|task| task.open(&keyset).unwrap()).collect()
}

#[tokio::test]
async fn what_a_request_sealed_is_exactly_what_a_node_gets_to_do() {
    let kit = Kit::new().await;
    let node = kit.node().await;
    let order = sealed(&kit, node).await;
    let task = queue::<ProvisionUser>(&kit, &order, SUBJECT).await.unwrap();
    let got = delivered(&kit, node).await;
    assert_eq!(got.len(), 1);
    assert_eq!((got[0].task_id, got[0].node_id), (task, node));
    assert_eq!(got[0].task_type, "allocation.provision_user");
    assert_eq!(got[0].params, serde_json::to_value(provision()).unwrap());
    assert_eq!(got[0].expires_at - got[0].issued_at, GOOD_FOR);
    // Again and again, as a retry needs it, and the other work of the order too.
    queue::<ProvisionUser>(&kit, &order, SUBJECT).await.unwrap();
    queue::<DeprovisionUser>(&kit, &order, SUBJECT).await.unwrap();
    let mut got = delivered(&kit, node).await;
    // What was queued in one moment is in no order.
    got.sort_by(|a, b| b.task_type.cmp(&a.task_type));
    let params: Vec<_> = got.into_iter().map(|task| task.params).collect();
    assert_eq!(
        params,
        [serde_json::to_value(provision()).unwrap(), serde_json::to_value(deprovision()).unwrap()]
    );
    assert_eq!(kit.audited("task.order", "refused").await, "0");
}

#[tokio::test]
async fn an_order_that_somebody_made_altered_or_moved_signs_nothing_and_is_reported() {
    let kit = Kit::new().await;
    let (node, other) = (kit.node().await, kit.node().await);
    let order = sealed(&kit, node).await;
    let mut refused = 0;
    let mut bad: Vec<(String, Vec<u8>, &str)> = Vec::new();
    for at in 0..order.len() {
        let mut altered = order.clone();
        altered[at] ^= 1;
        bad.push((format!("byte {at}"), altered, SUBJECT));
    }
    bad.push(("cut".to_owned(), order[..order.len() - 1].to_vec(), SUBJECT));
    bad.push(("empty".to_owned(), Vec::new(), SUBJECT));
    bad.push(("another allocation's".to_owned(), order.clone(), "alloc_two"));
    let plain = json!({ "node_id": other, "work": work(kit.test.db.ambient().now()) });
    bad.push(("not sealed at all".to_owned(), serde_json::to_vec(&plain).unwrap(), SUBJECT));
    let foreign = seal(&kit, &kit.with_master_key([8; 32]), ActorKind::User, node).await.unwrap();
    bad.push(("sealed with another master key".to_owned(), foreign, SUBJECT));
    for (what, bytes, subject) in bad.iter().step_by(7).chain(&bad[order.len()..]) {
        assert_eq!(queue::<ProvisionUser>(&kit, bytes, subject).await, Err(Code::Unprocessable), "{what}");
        refused += 1;
    }
    // Genuine, but about something else.
    assert_eq!(queue::<InstallAuthorizedKeys>(&kit, &order, SUBJECT).await, Err(Code::Unprocessable));
    assert_eq!(queue::<Reboot>(&kit, &order, SUBJECT).await, Err(Code::Unprocessable));
    refused += 2;
    assert_eq!(kit.audited("task.order", "refused").await, refused.to_string());
    assert_eq!(kit.text("SELECT count(*)::text FROM node_tasks".to_owned()).await, "0");
}

#[tokio::test]
async fn an_order_goes_to_its_own_node_whatever_the_rows_say() {
    let kit = Kit::new().await;
    let (node, other) = (kit.node().await, kit.node().await);
    kit.test.sql("CREATE TABLE rows_of_others (node_id uuid, work_order bytea)").await;
    let order = sealed(&kit, node).await;
    let mut admin = kit.test.conn(pg::Roles::Admin).await;
    sqlx::query("INSERT INTO rows_of_others VALUES ($1, $2)")
        .bind(node.uuid())
        .bind(&order)
        .execute(&mut admin)
        .await
        .unwrap();
    // A superuser sends the allocation elsewhere.
    sqlx::query("UPDATE rows_of_others SET node_id = $1")
        .bind(other.uuid())
        .execute(&mut admin)
        .await
        .unwrap();
    let order: Vec<u8> =
        sqlx::query_scalar("SELECT work_order FROM rows_of_others").fetch_one(&mut admin).await.unwrap();
    queue::<ProvisionUser>(&kit, &order, SUBJECT).await.unwrap();
    assert!(delivered(&kit, other).await.is_empty());
    assert_eq!(delivered(&kit, node).await[0].node_id, node);
}

#[tokio::test]
async fn work_is_authorised_until_it_says_and_a_task_never_outlives_that() {
    let kit = Kit::new().await;
    let node = kit.node().await;
    let order = sealed(&kit, node).await;
    kit.clock.advance(TimeDelta::days(1) - TimeDelta::minutes(10));
    queue::<ProvisionUser>(&kit, &order, SUBJECT).await.unwrap();
    let task = delivered(&kit, node).await.remove(0);
    assert!(task.expires_at - task.issued_at <= TimeDelta::minutes(10));
    kit.clock.advance(TimeDelta::minutes(10));
    assert_eq!(queue::<ProvisionUser>(&kit, &order, SUBJECT).await, Err(Code::Unprocessable));
    // Being late is nobody's attack, and cleaning up is authorised for as long as it takes.
    assert_eq!(kit.audited("task.order", "refused").await, "0");
    kit.clock.advance(TimeDelta::days(400));
    queue::<DeprovisionUser>(&kit, &order, SUBJECT).await.unwrap();
}

#[tokio::test]
async fn only_requests_of_people_and_service_accounts_seal_and_nobody_else_signs_work_that_changes_a_node() {
    let kit = Kit::new().await;
    let node = kit.node().await;
    assert!(seal(&kit, &kit.fleet, ActorKind::User, node).await.is_ok());
    assert!(seal(&kit, &kit.fleet, ActorKind::ServiceAccount, node).await.is_ok());
    for kind in [ActorKind::System, ActorKind::Node, ActorKind::Anonymous] {
        let refused = seal(&kit, &kit.fleet, kind, node).await;
        assert!(
            matches!(&refused, Err(Failure::Problem(p)) if p.code == Code::InsufficientPermissions),
            "{kind:?}"
        );
    }
    let mut tx = kit.write().await;
    let reboot = TaskRequest::<Reboot> {
        node,
        input: RebootInput { reason: "now".to_owned() },
        attempt: 1,
        good_for: GOOD_FOR,
        waiting: None,
    };
    assert!(kit.fleet.task_queue(&mut tx, reboot).await.is_err());
    // Each kind once, and not nothing.
    let tx = kit.test.db.write(permit(&kit, ActorKind::User), "test.seal").await.unwrap();
    let twice = vec![
        OrderedWork::from_input::<DeprovisionUser>(&deprovision()).unwrap(),
        OrderedWork::from_input::<DeprovisionUser>(&deprovision()).unwrap(),
    ];
    assert!(kit.fleet.order_seal(&tx, SUBJECT, node, twice).is_err());
    assert!(kit.fleet.order_seal(&tx, SUBJECT, node, Vec::new()).is_err());
}

/// As an earlier version sealed it: root on a machine that nobody installs anew afterwards.
#[tokio::test]
async fn an_order_for_sudo_without_reimaging_is_not_signed_any_more() {
    let kit = Kit::new().await;
    let node = kit.node().await;
    let params = |sudo: bool, isolation: Option<&str>| {
        let mut params = json!({ "account": account(), "owner": SUBJECT, "shell": "/bin/bash",
            "authorized_keys": [], "sudo": sudo });
        if let Some(isolation) = isolation {
            params["isolation"] = json!(isolation);
        }
        json!({ "task_type": "allocation.provision_user", "params": params })
    };
    for (sudo, isolation, signed) in [
        (true, None, false),
        (true, Some("user-revoke"), false),
        (false, Some("full-reimage"), false),
        (false, None, true),
        (true, Some("full-reimage"), true),
    ] {
        let work: OrderedWork = serde_json::from_value(params(sudo, isolation)).unwrap();
        let tx = kit.test.db.write(permit(&kit, ActorKind::User), "test.seal").await.unwrap();
        let order = kit.fleet.order_seal(&tx, SUBJECT, node, vec![work]).unwrap();
        tx.roll_back().await;
        let queued = queue::<ProvisionUser>(&kit, &order, SUBJECT).await.map(drop);
        let wanted = if signed { Ok(()) } else { Err(Code::Unprocessable) };
        assert_eq!(queued, wanted, "{sudo} {isolation:?}");
    }
}
