//! The ledger under any order of deliveries, steps, lost answers, full disks and crashes.

use chrono::{DateTime, TimeDelta, Utc};
use kernel::ids::TaskId;
use node_agent::{
    identity::Facts,
    journal::{FileJournal, Journal, Ledger, MOST_RECORDS, MemoryJournal, Seen, start_of},
};
use node_proto::{
    Task, TaskKind, Work,
    catalog::{Drain, DrainInput},
    contract::{Ending, TaskResult},
};
use proptest::prelude::*;
use serde_json::json;

const TASKS: usize = 3;

fn facts() -> Facts {
    Facts {
        hostname: "n".to_owned(),
        agent_version: "1".to_owned(),
        boot_id: "b".to_owned(),
        machine_id: String::new(),
    }
}

fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_800_000_000, 0).unwrap()
}

fn task(number: usize) -> Task {
    Task {
        task_id: uuid::Uuid::from_u128(number as u128 + 1).into(),
        node_id: uuid::Uuid::from_u128(7).into(),
        task_type: Drain::TYPE.name().to_owned(),
        params: json!({ "reason": "x" }),
        attempt: 1,
        issued_at: now(),
        expires_at: now() + TimeDelta::hours(1),
        correlation_id: uuid::Uuid::from_u128(1),
        traceparent: None,
        signer_version: 1,
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Deliver(usize),
    /// The task goes one step further.
    Step(usize),
    /// … and the agent crashes right after what was written.
    StepAndCrash(usize),
    /// The result arrives, but its sender does not hear that.
    TellUnheard(usize),
    Crash,
    Disk(bool),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => (0..TASKS).prop_map(Event::Deliver),
        6 => (0..TASKS).prop_map(Event::Step),
        1 => (0..TASKS).prop_map(Event::StepAndCrash),
        1 => (0..TASKS).prop_map(Event::TellUnheard),
        1 => Just(Event::Crash),
        1 => any::<bool>().prop_map(Event::Disk),
    ]
}

/// Where the agent thinks a task is; lost in a crash.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    Unknown,
    Taken,
    Running,
    Untold,
}

struct World {
    journal: MemoryJournal,
    ledger: Ledger<MemoryJournal>,
    stages: [Stage; TASKS],
    /// What cannot be undone by a crash: how often each task had its effect, and what was told of it.
    effects: [u32; TASKS],
    told: [Vec<TaskResult>; TASKS],
}

impl World {
    async fn new() -> Self {
        let journal = MemoryJournal::default();
        let ledger = Ledger::open(journal.clone(), now()).await.unwrap();
        let told = std::array::from_fn(|_| Vec::new());
        Self { journal, ledger, stages: [Stage::Unknown; TASKS], effects: [0; TASKS], told }
    }

    /// The agent starts anew. A full disk keeps it from starting until there is room.
    async fn crash(&mut self) {
        self.journal.set_full_disk(false);
        self.stages = [Stage::Unknown; TASKS];
        self.ledger = Ledger::open(self.journal.clone(), now()).await.unwrap();
        let recovered = self.ledger.recover(&facts(), |_| false).await.unwrap();
        for number in (0..TASKS).filter(|number| recovered.untold.contains(&task(*number).task_id)) {
            self.stages[number] = Stage::Untold;
        }
    }

    async fn deliver(&mut self, number: usize) {
        match self.ledger.see(task(number).task_id).await.unwrap() {
            Seen::New => {
                if self.ledger.take(&task(number)).await.is_ok() {
                    self.stages[number] = Stage::Taken;
                }
            }
            Seen::Active => {}
            Seen::Ended(result) => self.told[number].push(*result),
        }
    }

    /// `crashes` after whatever was written, before anything else is done.
    async fn step(&mut self, number: usize, crashes: bool) {
        let id: TaskId = task(number).task_id;
        match self.stages[number] {
            Stage::Unknown => {}
            Stage::Taken => {
                let work = Work::Drain(DrainInput { reason: "x".to_owned() });
                if self.ledger.start(id, start_of(&work, &facts(), now())).await.is_ok() && !crashes {
                    self.effects[number] += 1;
                    self.stages[number] = Stage::Running;
                }
            }
            Stage::Running => {
                let output = json!(self.effects[number]);
                let result = TaskResult { ending: Ending::Succeeded { output }, phases: Vec::new() };
                if self.ledger.finish(id, result).await.is_ok() {
                    self.stages[number] = Stage::Untold;
                }
            }
            Stage::Untold => {
                self.told[number].push(self.ledger.result(id).await.unwrap());
                if self.ledger.mark_reported(id).await.is_ok() {
                    self.stages[number] = Stage::Unknown;
                }
            }
        }
        if crashes {
            self.crash().await;
        }
    }

    async fn happen(&mut self, event: Event) {
        match event {
            Event::Deliver(number) => self.deliver(number).await,
            Event::Step(number) => self.step(number, false).await,
            Event::StepAndCrash(number) => self.step(number, true).await,
            Event::TellUnheard(number) if self.stages[number] == Stage::Untold => {
                self.told[number].push(self.ledger.result(task(number).task_id).await.unwrap());
            }
            Event::TellUnheard(_) => {}
            Event::Crash => self.crash().await,
            Event::Disk(full) => self.journal.set_full_disk(full),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_a_task_has_its_effect_at_most_once_and_one_result(
        events in prop::collection::vec(event(), 1..80),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut world = World::new().await;
            for event in events {
                world.happen(event).await;
            }
            // In the end the disk has room, everything is delivered once more, and nothing goes wrong.
            world.crash().await;
            for number in 0..TASKS {
                world.deliver(number).await;
                for _ in 0..4 {
                    world.step(number, false).await;
                }
            }
            for number in 0..TASKS {
                assert!(world.effects[number] <= 1, "{number} had its effect {} times", world.effects[number]);
                let told = &world.told[number];
                assert!(!told.is_empty(), "nothing was told of {number}");
                assert!(told.iter().all(|result| *result == told[0]), "{told:?}");
            }
        });
    }
}

#[tokio::test]
async fn steps_out_of_order_are_refused() {
    let ledger = Ledger::open(MemoryJournal::default(), now()).await.unwrap();
    let (one, id) = (task(0), task(0).task_id);
    let work = Work::Drain(DrainInput { reason: String::new() });
    let start = start_of(&work, &facts(), now());
    let result = TaskResult { ending: Ending::Succeeded { output: json!(1) }, phases: Vec::new() };
    assert!(ledger.start(id, start.clone()).await.is_err());
    assert!(ledger.finish(id, result.clone()).await.is_err());
    ledger.take(&one).await.unwrap();
    assert!(ledger.take(&one).await.is_err());
    ledger.start(id, start.clone()).await.unwrap();
    assert!(ledger.start(id, start).await.is_err());
    assert!(ledger.mark_reported(id).await.is_err());
    ledger.finish(id, result.clone()).await.unwrap();
    let other = TaskResult { ending: Ending::Succeeded { output: json!(2) }, phases: Vec::new() };
    assert!(ledger.finish(id, other).await.is_err());
    ledger.mark_reported(id).await.unwrap();
    assert_eq!(ledger.see(id).await.unwrap(), Seen::Ended(Box::new(result)));
}

#[tokio::test]
async fn a_record_is_forgotten_only_when_its_task_would_be_refused_as_expired() {
    let ledger = Ledger::open(MemoryJournal::default(), now()).await.unwrap();
    let result = TaskResult { ending: Ending::Succeeded { output: json!(1) }, phases: Vec::new() };
    for number in 0..2 {
        ledger.take(&task(number)).await.unwrap();
        ledger.finish(task(number).task_id, result.clone()).await.unwrap();
    }
    ledger.mark_reported(task(0).task_id).await.unwrap();
    assert_eq!(ledger.sweep(now() + TimeDelta::hours(24)).await.unwrap(), 0);
    // What was not told is kept, however old it is.
    assert_eq!(ledger.sweep(now() + TimeDelta::hours(26)).await.unwrap(), 1);
    assert_eq!(ledger.see(task(0).task_id).await.unwrap(), Seen::New);
    assert!(matches!(ledger.see(task(1).task_id).await.unwrap(), Seen::Ended(_)));
}

#[tokio::test]
async fn a_full_journal_takes_nothing_more() {
    let ledger = Ledger::open(MemoryJournal::default(), now()).await.unwrap();
    for number in 0..MOST_RECORDS {
        ledger.take(&task(number)).await.unwrap();
    }
    assert!(ledger.take(&task(MOST_RECORDS)).await.is_err());
}

#[tokio::test]
async fn a_file_that_lies_about_its_task_is_not_believed() {
    let dir = tempfile::tempdir().unwrap();
    let journal = FileJournal::open(dir.path()).unwrap();
    let ledger = Ledger::open(journal.clone(), now()).await.unwrap();
    ledger.take(&task(0)).await.unwrap();
    let path = |number| dir.path().join("tasks").join(format!("{}.json", task(number).task_id));
    std::fs::copy(path(0), path(1)).unwrap();
    assert!(journal.list().await.is_err());
    std::fs::remove_file(path(1)).unwrap();
    // A draft that a crash left behind is not a record.
    std::fs::write(dir.path().join("tasks/.x.json.tmp"), "{").unwrap();
    assert_eq!(journal.list().await.unwrap().len(), 1);
}
