//! Tasks handed out, reported and ended, on a real database and by several at once.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test support: a failure is a failed test")]

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use chrono::TimeDelta;
use endpoint::PolicySource;
use fleet::{
    Completion, Fleet, Settings,
    api::{CompletedTask, TaskEnding, TaskRequest, Waiting},
    authority::{Signing, Trust, TrustSettings},
    service::dispatch::{self, Ask, Claimed, MOST_DELIVERIES},
};
use kernel::{
    Ambient, Code, CorrelationId, Entropy, Failure, ManualClock, Secret,
    ids::{NodeId, OrgId, TaskId, UserId},
    policy::{IntegerKey, Setting},
};
use node_proto::{
    catalog::{Collect, CollectInput, TopologyDiscover, TopologyDiscoverInput},
    contract::{Ending, FailureCode, Phase, Progress, TaskFailure, TaskResult},
};
use pg::{Origin, Permit, Roles, WriteTx};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::TestDb;
use trust::signer::FileCustody;
use uuid::Uuid;

struct Random(Ambient);

impl Entropy for Random {
    fn fill(&self, out: &mut [u8]) {
        self.0.fill(out);
    }
}

struct Defaults;

#[async_trait]
impl PolicySource for Defaults {
    async fn setting(
        &self,
        key: IntegerKey,
        _: Option<OrgId>,
        _: Option<UserId>,
    ) -> Result<Setting, Failure> {
        Ok(key.default_setting())
    }
}

/// Remembers what it was told; fails when it is asked to.
#[derive(Default)]
struct Told {
    tasks: Mutex<Vec<CompletedTask>>,
    fails: Mutex<bool>,
}

#[async_trait]
impl Completion for Told {
    fn kind(&self) -> &'static str {
        "test"
    }
    async fn completed(&self, _: &mut WriteTx, task: &CompletedTask) -> Result<(), Failure> {
        if *self.fails.lock().unwrap() {
            return Err(std::io::Error::other("not now").into());
        }
        self.tasks.lock().unwrap().push(task.clone());
        Ok(())
    }
}

struct Kit {
    test: TestDb,
    clock: Arc<ManualClock>,
    fleet: Fleet,
    told: Arc<Told>,
    _home: TempDir,
}

const GOOD_FOR: TimeDelta = TimeDelta::hours(1);

impl Kit {
    async fn new() -> Self {
        let clock = ManualClock::starting_at("2031-05-06T07:08:09Z".parse().unwrap());
        let ambient = Ambient::new(clock.clone(), Arc::new(Random(Ambient::system())));
        let test = TestDb::create_with(ambient).await;
        let home = tempfile::tempdir().unwrap();
        let custody = Arc::new(FileCustody::open(home.path().join("task-signing")).unwrap());
        let settings = TrustSettings {
            trust_domain: "gpuaas.test".to_owned(),
            master_key: Secret::new([7; 32]),
            signing: Signing::Custody(custody),
        };
        let trust = Trust::new(test.db.clone(), settings).unwrap();
        trust.ensure().await.unwrap();
        let settings = Settings {
            node_url: "https://127.0.0.1:1".to_owned(),
            public_url: "http://127.0.0.1:2".to_owned(),
            programs_dir: home.path().join("programs"),
            auto_approve_simulated: false,
        };
        let told = Arc::new(Told::default());
        let fleet = Fleet::new(test.db.clone(), trust, Arc::new(Defaults), settings, vec![told.clone()]);
        test.sql("INSERT INTO regions VALUES ('here', 'Here', 1, now(), now())").await;
        Self { test, clock, fleet, told, _home: home }
    }

    async fn node(&self) -> NodeId {
        let id: NodeId = self.test.db.ambient().id();
        let uuid = id.uuid();
        self.test
            .sql(&format!(
                "INSERT INTO nodes (id, hostname, region, state, state_changed_at, created_at, updated_at)
                 VALUES ('{uuid}', '{uuid}', 'here', 'active', now(), now(), now())"
            ))
            .await;
        id
    }

    fn origin(&self) -> Origin {
        Origin::internal(CorrelationId(self.test.db.ambient().uuid()))
    }

    async fn write(&self) -> WriteTx {
        self.test.db.write(Permit::system("test", self.origin()), "test.write").await.unwrap()
    }

    async fn queue(&self, node: NodeId) -> TaskId {
        // Ids sort by time.
        self.clock.advance(TimeDelta::milliseconds(1));
        let mut tx = self.write().await;
        let request = TaskRequest::<Collect> {
            node,
            input: CollectInput { parts: Vec::new() },
            attempt: 1,
            good_for: GOOD_FOR,
            waiting: Some(Waiting { kind: "test", key: "key".to_owned() }),
        };
        let id = self.fleet.task_queue(&mut tx, request).await.unwrap();
        tx.commit(None).await.unwrap();
        id
    }

    async fn claim(&self, node: NodeId, holding: Option<Vec<TaskId>>) -> Vec<TaskId> {
        ids(&dispatch::claim(&self.fleet, &[Ask { node, room: 16, holding }]).await.unwrap())
    }

    async fn given(&self, node: NodeId) -> TaskId {
        let task = self.queue(node).await;
        assert_eq!(self.claim(node, None).await, [task]);
        task
    }

    async fn text(&self, sql: String) -> String {
        let mut conn = self.test.conn(Roles::Admin).await;
        sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(&mut conn).await.unwrap()
    }

    async fn state(&self, task: TaskId) -> String {
        self.text(format!("SELECT state FROM node_tasks WHERE id = '{}'", task.uuid())).await
    }

    async fn audited(&self, action: &str, result: &str) -> String {
        self.text(format!(
            "SELECT count(*)::text FROM audit_logs WHERE action = '{action}' AND result = '{result}'"
        ))
        .await
    }

    async fn tell(&self, node: NodeId, task: TaskId, ending: Ending) -> Result<bool, Code> {
        let told = TaskResult { ending, phases: Vec::new() };
        match dispatch::result(&self.fleet, node, task, told, &self.origin()).await {
            Ok(answer) => Ok(answer.counted),
            Err(Failure::Problem(problem)) => Err(problem.code),
            Err(Failure::Internal(_)) => Err(Code::InternalError),
        }
    }

    fn endings(&self) -> Vec<String> {
        let tasks = self.told.tasks.lock().unwrap();
        tasks
            .iter()
            .map(|task| format!("{:?}", task.ending).chars().take_while(|c| c.is_alphabetic()).collect())
            .collect()
    }
}

fn ids(claimed: &[Claimed]) -> Vec<TaskId> {
    claimed.iter().map(|task| task.id).collect()
}

fn succeeded() -> Ending {
    Ending::Succeeded { output: json!({ "parts": [] }) }
}

fn failed(message: &str) -> Ending {
    Ending::Failed { failure: TaskFailure { code: FailureCode::Driver, message: message.to_owned() } }
}

#[tokio::test]
async fn many_who_claim_at_once_get_each_task_once() {
    let kit = Kit::new().await;
    let nodes = [kit.node().await, kit.node().await];
    let mut queued = Vec::new();
    for n in 0..40 {
        queued.push(kit.queue(nodes[n % 2]).await);
    }
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let fleet = kit.fleet.clone();
        workers.spawn(async move {
            let mut got = Vec::new();
            for _ in 0..20 {
                let asks = nodes.map(|node| Ask { node, room: 3, holding: Some(Vec::new()) });
                got.extend(ids(&dispatch::claim(&fleet, &asks).await.unwrap()));
            }
            got
        });
    }
    let mut got: Vec<TaskId> = workers.join_all().await.into_iter().flatten().collect();
    got.sort_unstable();
    assert_eq!(got, queued);
}

#[tokio::test]
async fn each_node_gets_its_own_in_order_and_no_more_than_it_has_room_for() {
    let kit = Kit::new().await;
    let (a, b, idle) = (kit.node().await, kit.node().await, kit.node().await);
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        of_b.push(kit.queue(b).await);
        of_a.push(kit.queue(a).await);
    }
    let ask = |node, room| Ask { node, room, holding: None };
    let claimed = dispatch::claim(&kit.fleet, &[ask(a, 2), ask(b, 16), ask(idle, 16)]).await.unwrap();
    let of = |node| ids(&claimed.iter().filter(|t| t.node_id == node).cloned().collect::<Vec<_>>());
    assert_eq!((of(a), of(b), of(idle)), (of_a[..2].to_vec(), of_b, Vec::new()));
    assert_eq!(kit.claim(a, None).await, of_a[2..]);
}

#[tokio::test]
async fn a_lapsed_lease_comes_back_only_when_the_node_says_it_does_not_hold_the_task() {
    let kit = Kit::new().await;
    let (node, other) = (kit.node().await, kit.node().await);
    let task = kit.given(node).await;
    assert!(kit.claim(node, Some(Vec::new())).await.is_empty(), "the lease still runs");
    kit.clock.advance(TimeDelta::seconds(31));
    assert!(kit.claim(node, None).await.is_empty(), "a node that does not say may have it");
    assert!(kit.claim(node, Some(vec![task])).await.is_empty(), "the node has it");
    assert!(kit.claim(other, Some(Vec::new())).await.is_empty(), "it is another node's");
    // What another node claims to hold says nothing about this one.
    let asks = [
        Ask { node: other, room: 16, holding: Some(vec![task]) },
        Ask { node, room: 16, holding: Some(Vec::new()) },
    ];
    let again = dispatch::claim(&kit.fleet, &asks).await.unwrap();
    assert_eq!((ids(&again), again[0].deliveries), (vec![task], 2));
    // Once started it is the node's, however long it takes.
    dispatch::progress(&kit.fleet, node, task, Progress { phases: Vec::new() }).await.unwrap();
    kit.clock.advance(TimeDelta::seconds(31));
    assert!(kit.claim(node, Some(Vec::new())).await.is_empty());
    assert_eq!(kit.state(task).await, "running");
}

#[tokio::test]
async fn what_could_not_be_sent_is_there_for_the_next_who_asks() {
    let kit = Kit::new().await;
    let node = kit.node().await;
    let task = kit.given(node).await;
    dispatch::put_back(&kit.fleet, &[task]).await.unwrap();
    let again = dispatch::claim(&kit.fleet, &[Ask { node, room: 1, holding: None }]).await.unwrap();
    assert_eq!((ids(&again), again[0].deliveries), (vec![task], 1));
    assert_eq!(kit.tell(node, task, succeeded()).await, Ok(true));
    dispatch::put_back(&kit.fleet, &[task]).await.unwrap();
    assert_eq!(kit.state(task).await, "succeeded");
}

#[tokio::test]
async fn a_task_is_handed_out_so_often_and_no_more() {
    let kit = Kit::new().await;
    let node = kit.node().await;
    let task = kit.queue(node).await;
    for _ in 0..MOST_DELIVERIES {
        assert_eq!(kit.claim(node, Some(Vec::new())).await, [task]);
        kit.clock.advance(TimeDelta::seconds(31));
    }
    assert!(kit.claim(node, Some(Vec::new())).await.is_empty());
    assert!(dispatch::ready(&kit.fleet, &[node]).await.unwrap().is_empty());
}

#[tokio::test]
async fn ready_work_is_found_without_being_told() {
    let kit = Kit::new().await;
    let (node, idle) = (kit.node().await, kit.node().await);
    let task = kit.queue(node).await;
    let ready = dispatch::ready(&kit.fleet, &[node, idle]).await.unwrap();
    assert_eq!(ready, [dispatch::Ready { node, lapsed: None }]);
    kit.claim(node, None).await;
    assert!(dispatch::ready(&kit.fleet, &[node, idle]).await.unwrap().is_empty());
    kit.clock.advance(TimeDelta::seconds(31));
    let ready = dispatch::ready(&kit.fleet, &[node, idle]).await.unwrap();
    assert_eq!(ready, [dispatch::Ready { node, lapsed: Some(task) }]);
}

#[tokio::test]
async fn rows_that_no_signer_signed_are_never_sent() {
    let kit = Kit::new().await;
    let (node, other) = (kit.node().await, kit.node().await);
    let good = kit.queue(node).await;
    // Whoever can write rows tries what they can think of.
    let columns = "node_id, task_type, payload, signature, signer_version, correlation_id, issued_at, expires_at, \
                   waiting_kind, waiting_key, created_at, updated_at";
    let forged = |id: u128, select: &str| {
        format!(
            "INSERT INTO node_tasks (id, {columns}) SELECT '{}', {select} FROM node_tasks WHERE id = '{}'",
            Uuid::from_u128(id),
            good.uuid()
        )
    };
    let node_id = other.uuid();
    let attempts = [
        columns.to_owned(),
        columns.replace("node_id", &format!("'{node_id}'")),
        columns.replace(
            "payload",
            r"convert_to(replace(convert_from(payload, 'UTF8'), 'diag.collect', 'node.reboot'), 'UTF8')",
        ),
        columns.replace("task_type", "'node.reboot'"),
        columns.replace("expires_at", "expires_at + interval '1 year'"),
        columns.replace("signer_version", "99"),
        columns.replace("signature", "set_byte(signature, 0, get_byte(signature, 0) # 1)"),
    ];
    for (n, select) in attempts.iter().enumerate() {
        kit.test.sql(&forged(n as u128 + 1, select)).await;
    }
    let asks = [node, other].map(|node| Ask { node, room: 16, holding: None });
    let claimed = dispatch::claim(&kit.fleet, &asks).await.unwrap();
    assert_eq!(claimed.len(), attempts.len() + 1);
    let (mine, others): (Vec<_>, Vec<_>) = claimed.into_iter().partition(|task| task.node_id == node);
    let sent = dispatch::checked(&kit.fleet, node, mine).await.unwrap();
    let keyset = kit.fleet.trust().keyset().await.unwrap().0;
    let sent: Vec<TaskId> = sent.iter().map(|task| task.open(&keyset).unwrap().task_id).collect();
    assert_eq!(sent, [good]);
    assert!(dispatch::checked(&kit.fleet, other, others).await.unwrap().is_empty());
    let rejected = attempts.len().to_string();
    assert_eq!(kit.audited("task.dispatch", "refused").await, rejected);
    assert_eq!(
        kit.text("SELECT count(*)::text FROM node_tasks WHERE state = 'failed'".to_owned()).await,
        rejected
    );
    assert_eq!(kit.endings(), vec!["Rejected"; attempts.len()]);
    assert_eq!(kit.state(good).await, "dispatched");
}

#[tokio::test]
async fn a_task_ends_once_however_often_and_by_whomever_it_is_told() {
    let kit = Kit::new().await;
    let (node, other) = (kit.node().await, kit.node().await);
    let task = kit.queue(node).await;
    assert_eq!(
        kit.tell(node, task, succeeded()).await,
        Err(Code::InvalidTransition),
        "it was not handed out"
    );
    kit.claim(node, None).await;
    assert_eq!(kit.tell(other, task, succeeded()).await, Err(Code::NotFound));
    assert_eq!(kit.tell(node, TaskId::from(Uuid::nil()), succeeded()).await, Err(Code::NotFound));
    let (first, second) = tokio::join!(kit.tell(node, task, succeeded()), kit.tell(node, task, succeeded()));
    assert_eq!((first, second), (Ok(true), Ok(true)));
    assert_eq!(kit.tell(node, task, failed("no")).await, Err(Code::Conflict));
    assert_eq!(kit.tell(node, task, succeeded()).await, Ok(true));
    assert_eq!((kit.state(task).await.as_str(), kit.endings()), ("succeeded", vec!["Told".to_owned()]));
    assert_eq!(kit.audited("task.result", "allowed").await, "1");
}

#[tokio::test]
async fn two_different_endings_at_once_leave_one() {
    let kit = Kit::new().await;
    let node = kit.node().await;
    for _ in 0..5 {
        let task = kit.given(node).await;
        let (a, b) = tokio::join!(kit.tell(node, task, succeeded()), kit.tell(node, task, failed("no")));
        assert!(
            matches!((a, b), (Ok(true), Err(Code::Conflict)) | (Err(Code::Conflict), Ok(true))),
            "{a:?} {b:?}"
        );
    }
    assert_eq!(kit.endings(), vec!["Told"; 5]);
}

#[tokio::test]
async fn a_result_and_the_end_of_its_time_race_and_exactly_one_wins() {
    let kit = Kit::new().await;
    let node = kit.node().await;
    for _ in 0..5 {
        let task = kit.given(node).await;
        kit.clock.advance(GOOD_FOR);
        let (told, expired) =
            tokio::join!(kit.tell(node, task, succeeded()), dispatch::expire_overdue(&kit.fleet, 10));
        let state = kit.state(task).await;
        match (told, expired) {
            (Ok(true), Ok(0)) => assert_eq!(state, "succeeded"),
            (Ok(false), Ok(1)) => assert_eq!(state, "expired"),
            other => panic!("{other:?} left it {state}"),
        }
    }
    assert_eq!(kit.endings().len(), 5);
}

#[tokio::test]
async fn what_nobody_told_in_time_expires_and_a_late_answer_is_evidence() {
    let kit = Kit::new().await;
    let node = kit.node().await;
    let (given, queued) = (kit.given(node).await, kit.queue(node).await);
    assert_eq!(dispatch::expire_overdue(&kit.fleet, 10).await.map_err(drop), Ok(0));
    kit.clock.advance(GOOD_FOR);
    assert!(kit.claim(node, Some(Vec::new())).await.is_empty(), "what is over is not handed out");
    assert_eq!(dispatch::expire_overdue(&kit.fleet, 1).await.map_err(drop), Ok(2));
    assert_eq!(dispatch::expire_overdue(&kit.fleet, 10).await.map_err(drop), Ok(0));
    assert_eq!(
        (kit.state(given).await, kit.state(queued).await),
        ("expired".to_owned(), "expired".to_owned())
    );
    assert_eq!(kit.endings(), ["Expired", "Expired"]);
    let progress = dispatch::progress(&kit.fleet, node, given, Progress { phases: Vec::new() }).await;
    assert!(progress.is_ok_and(|answer| answer.cancelled));
    assert_eq!(kit.tell(node, given, succeeded()).await, Ok(false));
    assert_eq!(kit.tell(node, given, failed("another")).await, Ok(false));
    let late = kit
        .text(format!("SELECT late_outcome->>'status' FROM node_tasks WHERE id = '{}'", given.uuid()))
        .await;
    assert_eq!((late.as_str(), kit.endings().len()), ("succeeded", 2));
}

#[tokio::test]
async fn a_cancelled_task_tells_its_node_to_stop() {
    let kit = Kit::new().await;
    let node = kit.node().await;
    let task = kit.given(node).await;
    let phases = vec![Phase {
        name: "collect".to_owned(),
        started_at: kit.test.db.ambient().now(),
        duration_ms: None,
    }];
    let progress = || dispatch::progress(&kit.fleet, node, task, Progress { phases: phases.clone() });
    assert!(progress().await.is_ok_and(|answer| !answer.cancelled));
    let mut tx = kit.write().await;
    let stale = dispatch::cancel(&kit.fleet, &mut tx, task, Some(1)).await;
    assert!(matches!(stale, Err(Failure::Problem(problem)) if problem.code == Code::Conflict));
    let view = dispatch::cancel(&kit.fleet, &mut tx, task, None).await.map_err(|_| "refused").unwrap();
    tx.commit(None).await.unwrap();
    assert_eq!(
        (view.state.as_str(), view.phases.len(), view.params),
        ("cancelled", 1, json!({ "parts": [] }))
    );
    assert!(progress().await.is_ok_and(|answer| answer.cancelled));
    let mut tx = kit.write().await;
    let again = dispatch::cancel(&kit.fleet, &mut tx, task, None).await;
    assert!(matches!(again, Err(Failure::Problem(problem)) if problem.code == Code::InvalidTransition));
    tx.roll_back().await;
    assert_eq!(
        (kit.tell(node, task, succeeded()).await, kit.endings()),
        (Ok(false), vec!["Cancelled".to_owned()])
    );
}

#[tokio::test]
async fn a_success_that_nobody_can_read_is_a_failure() {
    let kit = Kit::new().await;
    let node = kit.node().await;
    let task = kit.given(node).await;
    let odd = Ending::Succeeded { output: json!({ "parts": "none" }) };
    assert_eq!(kit.tell(node, task, odd.clone()).await, Ok(true));
    assert_eq!(kit.tell(node, task, odd).await, Ok(true), "the same again is the same");
    let code = kit
        .text(format!("SELECT outcome->'failure'->>'code' FROM node_tasks WHERE id = '{}'", task.uuid()))
        .await;
    assert_eq!((kit.state(task).await.as_str(), code.as_str()), ("failed", "invalid"));
    let tasks = kit.told.tasks.lock().unwrap();
    assert!(matches!(&tasks[..], [CompletedTask { ending: TaskEnding::Told(Ending::Failed { .. }), .. }]));
}

#[tokio::test]
async fn when_the_waiting_party_fails_nothing_is_stored_and_the_node_tells_again() {
    let kit = Kit::new().await;
    let node = kit.node().await;
    let task = kit.given(node).await;
    *kit.told.fails.lock().unwrap() = true;
    assert_eq!(kit.tell(node, task, succeeded()).await, Err(Code::InternalError));
    assert_eq!(
        (kit.state(task).await.as_str(), kit.audited("task.result", "allowed").await.as_str()),
        ("dispatched", "0")
    );
    *kit.told.fails.lock().unwrap() = false;
    assert_eq!(kit.tell(node, task, succeeded()).await, Ok(true));
    assert_eq!(kit.endings(), ["Told"]);
}

#[tokio::test]
async fn one_that_cannot_be_ended_does_not_keep_others_from_expiring() {
    let kit = Kit::new().await;
    let node = kit.node().await;
    let stuck = kit.queue(node).await;
    let mut tx = kit.write().await;
    let request = TaskRequest::<TopologyDiscover> {
        node,
        input: TopologyDiscoverInput {},
        attempt: 1,
        good_for: GOOD_FOR,
        waiting: None,
    };
    let free = kit.fleet.task_queue(&mut tx, request).await.unwrap();
    tx.commit(None).await.unwrap();
    kit.clock.advance(GOOD_FOR);
    *kit.told.fails.lock().unwrap() = true;
    assert_eq!(dispatch::expire_overdue(&kit.fleet, 1).await.map_err(drop), Ok(1));
    assert_eq!((kit.state(stuck).await, kit.state(free).await), ("queued".to_owned(), "expired".to_owned()));
}

#[tokio::test]
async fn what_was_signed_cannot_be_changed_in_its_row() {
    let kit = Kit::new().await;
    let node = kit.node().await;
    let task = kit.queue(node).await;
    let mut system = kit.test.conn(Roles::System).await;
    for column in
        ["payload = payload", "signature = signature", "expires_at = expires_at", "node_id = node_id"]
    {
        let sql = format!("BEGIN READ WRITE; UPDATE node_tasks SET {column} WHERE id = '{}'", task.uuid());
        let refused =
            sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut system).await.unwrap_err().to_string();
        assert!(refused.contains("signed work cannot be changed"), "{refused}");
        sqlx::raw_sql("ROLLBACK").execute(&mut system).await.unwrap();
    }
    let unchanged: Value = json!({ "state": kit.state(task).await });
    assert_eq!(unchanged, json!({ "state": "queued" }));
}
