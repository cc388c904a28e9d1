//! The agent of today at a gateway of 1.1: it joins, works once, reports, follows the trust, and renews, without
//! complaint. Nobody asks it to dial, and it does not.

use std::{
    io::Write,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use chrono::TimeDelta;
use kernel::{Ambient, Secret, ids::TaskId};
use node_agent::{
    drivers::simulated::{Machine, Profile},
    executor::{Executor, Finish, Job, ThreadExecutor},
    handlers::{DrainMark, Handlers},
    identity::{Facts, FileStore},
    journal::FileJournal,
    redact,
    session::{Agent, Log, MachineReports, NoStreams, NoUpdates, Parts, Settings},
    transport::Tcp,
};
use node_contract_1_1::{gateway::Gateway, messages::Ending};
use node_proto::Work;
use serde_json::{Value, json};
use testkit::{eventually, eventually_within};
use tokio_util::sync::CancellationToken;

/// The real executor, with a list of what was really begun. Probes go on only when the test says so; an update fetches
/// its program and goes no further.
#[derive(Clone)]
struct Watched {
    real: Arc<ThreadExecutor>,
    begun: Arc<Mutex<Vec<TaskId>>>,
    held: Arc<Mutex<Vec<(Job, Finish)>>>,
    program: PathBuf,
}

impl Watched {
    fn begun(&self) -> usize {
        self.begun.lock().unwrap().len()
    }

    fn go_on(&self) {
        let (job, finish) = self.held.lock().unwrap().pop().unwrap();
        self.real.start(job, finish);
    }
}

impl Executor for Watched {
    fn start(&self, job: Job, finish: Finish) {
        self.begun.lock().unwrap().push(job.task.task_id);
        match &job.work {
            Work::HealthProbe(_) => self.held.lock().unwrap().push((job, finish)),
            Work::SelfUpdate(input) => {
                let (input, to) = (input.clone(), self.program.clone());
                std::thread::spawn(move || {
                    let fetched = job.programs.fetch(&input.sha256, input.size_bytes, &to);
                    let output =
                        json!({ "from_version": "1.2.0", "to_version": input.version, "rolled_back": false });
                    finish.end(fetched.map(|()| output));
                });
            }
            _ => self.real.start(job, finish),
        }
    }
}

/// What the agent writes to its own log.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Written {
    fn times(&self, text: &str) -> usize {
        String::from_utf8_lossy(&self.0.lock().unwrap()).matches(text).count()
    }
}

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// As the program puts it together, on a machine that does not exist.
fn agent(dir: &std::path::Path) -> (Agent<Tcp, FileJournal, Watched>, Watched) {
    let ambient = Ambient::system();
    let drivers = Arc::new(Machine::new(Profile::H200x8, "gpu-1", 1, ambient.clone()).drivers());
    let drain = DrainMark::open(dir.join("drain.json"));
    let handlers = Handlers { drivers: drivers.clone(), drain: drain.clone(), replace: None };
    let real = Arc::new(ThreadExecutor::new(Arc::new(handlers)));
    let executor =
        Watched { real, begun: Arc::default(), held: Arc::default(), program: dir.join("fetched") };
    let agent = Agent::new(Parts {
        connect: Arc::new(Tcp),
        store: Arc::new(FileStore::open(dir).unwrap()),
        journal: FileJournal::open(dir).unwrap(),
        executor: executor.clone(),
        facts: Facts {
            hostname: "gpu-1".to_owned(),
            agent_version: "1.2.0".to_owned(),
            boot_id: drivers.power.boot_id(),
            machine_id: "m-1".to_owned(),
        },
        reports: Arc::new(MachineReports::new(drivers, drain)),
        updates: Arc::new(NoUpdates),
        log: Log::new(ambient.clone(), 1000, redact::redact),
        settings: Settings::default(),
        streams: Arc::new(NoStreams),
        ambient,
    });
    (agent, executor)
}

/// What a task gave when it was done.
async fn output_of(gateway: &Gateway, task: &String) -> Value {
    let result = eventually(task, || async { gateway.seen().tasks[task].results.first().cloned() }).await;
    let Ending::Succeeded { output } = result.ending else { panic!("{result:?}") };
    output
}

#[tokio::test]
async fn the_current_agent_enrols_works_reports_and_renews_at_a_gateway_of_1_1() {
    let written = Written::default();
    let writer = written.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).finish();
    // One thread runs everything that speaks here.
    let _log = tracing_subscriber::util::SubscriberInitExt::set_default(subscriber);

    let gateway = Gateway::start(TimeDelta::seconds(24)).await;
    let (join, token) = gateway.created_node("gpu-1");
    let node = join.node_id.clone();
    let dir = tempfile::tempdir().unwrap();
    let (agent, executor) = agent(&dir.path().join("state"));
    let join = serde_json::from_value(json!(join)).unwrap();
    agent.enroll(&join, &Secret::new(token)).await.unwrap();

    let drain = gateway.queue(&node, "node.drain", json!({ "reason": "test" }));
    let discover = gateway.queue(&node, "slice.topology_discover", json!({}));
    let probe = gateway.queue(&node, "diag.health_probe", json!({ "profile": "light", "expected_gpus": 8 }));
    let cancel = CancellationToken::new();
    let running = tokio::spawn(agent.run(cancel.clone()));

    eventually("a start is told", || async { gateway.seen().tasks[&probe].progress.first().map(drop) }).await;
    eventually("it says that it holds the probe", || async {
        gateway.seen().waits.last()?.holding.as_ref()?.split(',').find(|held| **held == probe).map(drop)
    })
    .await;
    executor.go_on();
    for (task, part) in [(&drain, "drained"), (&discover, "candidates"), (&probe, "passed")] {
        assert!(output_of(&gateway, task).await.get(part).is_some(), "{part}");
    }
    assert_eq!(executor.begun(), 3);
    eventually("it reports", || async {
        gateway.seen().heartbeats.last().filter(|h| h.inventory.drained).map(drop)
    })
    .await;

    // The same task comes again: it is told again, and not done again.
    gateway.hand_out_again(&drain);
    let results = eventually("the result is told again", || async {
        let results = gateway.seen().tasks[&drain].results.clone();
        (results.len() > 1).then_some(results)
    })
    .await;
    assert!(results.iter().all(|result| *result == results[0]));
    assert_eq!(executor.begun(), 3);

    // It hears of a new signer by the answer to a report, and confirms it by the next.
    gateway.change_signer();
    eventually("it has the new list", || async {
        gateway.seen().heartbeats.last().filter(|h| h.keyset_serial == Some(2)).map(drop)
    })
    .await;
    let program = vec![7; 300_000];
    let sha256 = gateway.offer(program.clone());
    let input = json!({ "version": "1.2.1", "sha256": sha256, "size_bytes": program.len() });
    let update = gateway.queue(&node, "node.self_update", input);
    assert_eq!(output_of(&gateway, &update).await["to_version"], "1.2.1");
    assert_eq!(std::fs::read(&executor.program).unwrap(), program);

    // A certificate of a day would be renewed an hour before its end; this one after two thirds of its life.
    let (first, heard) = {
        let seen = gateway.seen();
        (seen.heartbeats[0].certificate_expires_at, seen.heartbeats.len())
    };
    eventually_within(Duration::from_secs(40), "it renews and reports the new certificate", || async {
        let seen = gateway.seen();
        (seen.keys.len() > 1 && seen.heartbeats.last()?.certificate_expires_at > first).then_some(())
    })
    .await;

    // It is told to make a new key, and the answer is lost: it asks again for the same key.
    gateway.seen().lost_renewals = 1;
    gateway.ask_for_new_key(&node);
    eventually("it has a new key", || async {
        let seen = gateway.seen();
        (seen.keys.len() > 3 && seen.connections > 3).then_some(())
    })
    .await;
    let after = gateway.queue(&node, "slice.topology_discover", json!({}));
    output_of(&gateway, &after).await;
    eventually("its log lines are taken", || async {
        let seen = gateway.seen();
        seen.log_lines
            .iter()
            .find(|line| line.message.contains(&after) && line.message.ends_with("is done"))
            .map(drop)
    })
    .await;

    {
        let seen = gateway.seen();
        assert!(seen.heartbeats.len() > heard + 5, "reports went on: {}", seen.heartbeats.len());
        assert!(seen.heartbeats.iter().all(|h| h.authority_ids.as_ref().is_some_and(|ids| ids.len() == 1)));
        assert!(seen.heartbeats.last().unwrap().clock_offset_ms.is_some());
        assert!(seen.waits.iter().all(|wait| wait.holding.is_some()));
        assert_eq!(seen.trust_asked, 1, "once, for the new signer");
        let keys = &seen.keys;
        assert!(keys.len() == 4 && keys[1] != keys[2] && keys[2] == keys[3], "{keys:?}");
        assert_eq!(
            seen.connections, 4,
            "to join, to work, and with each new certificate; none to be reached by"
        );
        assert_eq!(seen.unknown_paths, [""; 0]);
        let once = seen.tasks.iter().filter(|(id, _)| **id != drain).all(|(_, task)| task.deliveries == 1);
        assert!(once, "what it holds is not handed out again");
        assert_eq!(seen.contracts.iter().collect::<Vec<_>>(), [node_proto::contract::CONTRACT]);
    }
    assert_eq!(written.times("is in contact with the control plane"), 1);
    assert_eq!(written.times("contact is lost"), 0);
    assert_eq!(written.times("log lines are not taken"), 0);

    cancel.cancel();
    running.await.unwrap().unwrap();
}
