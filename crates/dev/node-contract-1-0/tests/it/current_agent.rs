//! The agent of today at a gateway of 1.0: it joins, works once, reports, and renews, without complaint.

use std::{
    io::Write,
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
    session::{Agent, Log, MachineReports, NoUpdates, Parts, Settings},
    transport::Tcp,
};
use node_contract_1_0::{gateway::Gateway, messages::Ending};
use node_proto::Work;
use serde_json::json;
use testkit::{eventually, eventually_within};
use tokio_util::sync::CancellationToken;

/// The real executor, with a list of what was really begun. Probes go on only when the test says so.
#[derive(Clone)]
struct Watched {
    real: Arc<ThreadExecutor>,
    begun: Arc<Mutex<Vec<TaskId>>>,
    held: Arc<Mutex<Vec<(Job, Finish)>>>,
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
        match job.work {
            Work::HealthProbe(_) => self.held.lock().unwrap().push((job, finish)),
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
    let executor = Watched { real, begun: Arc::default(), held: Arc::default() };
    let agent = Agent::new(Parts {
        connect: Arc::new(Tcp),
        store: Arc::new(FileStore::open(dir).unwrap()),
        journal: FileJournal::open(dir).unwrap(),
        executor: executor.clone(),
        facts: Facts {
            hostname: "gpu-1".to_owned(),
            agent_version: "1.1.0".to_owned(),
            boot_id: drivers.power.boot_id(),
            machine_id: "m-1".to_owned(),
        },
        reports: Arc::new(MachineReports::new(drivers, drain)),
        updates: Arc::new(NoUpdates),
        log: Log::new(ambient.clone(), 1000, redact::redact),
        settings: Settings::default(),
        ambient,
    });
    (agent, executor)
}

#[tokio::test]
async fn the_current_agent_enrols_works_reports_and_renews_at_a_gateway_of_1_0() {
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
    executor.go_on();
    for (task, part) in [(&drain, "drained"), (&discover, "candidates"), (&probe, "passed")] {
        let result = eventually(task, || async { gateway.seen().tasks[task].results.first().cloned() }).await;
        let Ending::Succeeded { output } = result.ending else { panic!("{result:?}") };
        assert!(output.get(part).is_some(), "{output}");
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

    // A certificate of a day would be renewed an hour before its end; this one after two thirds of its life.
    let (first, heard) = {
        let seen = gateway.seen();
        (seen.heartbeats[0].certificate_expires_at, seen.heartbeats.len())
    };
    eventually_within(Duration::from_secs(40), "it renews and reports the new certificate", || async {
        let seen = gateway.seen();
        (seen.renewals > 0 && seen.heartbeats.last()?.certificate_expires_at > first).then_some(())
    })
    .await;
    let after = gateway.queue(&node, "slice.topology_discover", json!({}));
    eventually("it works on", || async { gateway.seen().tasks[&after].results.first().map(drop) }).await;
    eventually("nobody takes its log lines", || async {
        let seen = gateway.seen();
        (seen.unknown_paths.iter().filter(|path| *path == "logs").count() > 1).then_some(())
    })
    .await;

    {
        let seen = gateway.seen();
        assert!(seen.heartbeats.len() > heard + 5, "reports went on: {}", seen.heartbeats.len());
        assert_eq!(seen.trust_asked, 0, "an answer that says nothing of trust asks for nothing");
        assert_eq!(seen.renewals, 1);
        assert_eq!(seen.connections, 3, "to join, to work, and with the new certificate");
        assert!(seen.unknown_paths.iter().all(|path| path == "logs"), "{:?}", seen.unknown_paths);
        assert_eq!(seen.contracts.iter().collect::<Vec<_>>(), [node_proto::contract::CONTRACT]);
    }
    assert_eq!(written.times("is in contact with the control plane"), 1);
    assert_eq!(written.times("contact is lost"), 0);
    assert_eq!(written.times("log lines are not taken"), 1, "it is said once");

    cancel.cancel();
    running.await.unwrap().unwrap();
}
