//! Every task runs at most once and ends once, whatever is killed, lost or said twice. The effect is counted on the
//! machine itself: a probe asks a tool there, and the tool writes a line.

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use testkit::{Flow, Machine, Wire, World, eventually};

async fn world() -> World {
    let world = World::start().await;
    world.policy("fleet.heartbeat_seconds", 1).await;
    world.policy("fleet.offline_after_heartbeats", 100).await;
    world.policy("fleet.task_lease_seconds", 5).await;
    world
}

/// It has one result, which is in the trail once and does not change any more.
async fn ended_once(world: &World, task: &str) -> Value {
    let ended = world.task_ended(task).await;
    assert!(!ended["outcome"].is_null() && ended["late_outcome"].is_null(), "{ended}");
    let sql =
        format!("SELECT count(*) FROM audit_logs WHERE action = 'task.result' AND target_id = '{task}'");
    assert_eq!(world.count(&sql).await, 1, "{ended}");
    ended
}

async fn succeeded_once(world: &World, task: &str) -> Value {
    let ended = ended_once(world, task).await;
    assert_eq!(
        (&ended["state"], &ended["outcome"]["output"]["passed"]),
        (&json!("succeeded"), &json!(true)),
        "{ended}"
    );
    ended
}

async fn interrupted_once(world: &World, task: &str) {
    let ended = ended_once(world, task).await;
    let code = &ended["outcome"]["failure"]["code"];
    assert_eq!((&ended["state"], code), (&json!("failed"), &json!("interrupted")), "{ended}");
}

async fn journal_says(machine: &Machine, task: &str, state: &str) {
    eventually(&format!("the journal says {state}"), || async {
        (machine.agent.journal(task)? == state).then_some(())
    })
    .await;
}

async fn begun(machine: &Machine, effects: usize) {
    eventually("the work has begun", || async { (machine.effects() == effects).then_some(()) }).await;
}

#[tokio::test]
async fn an_agent_that_is_killed_before_during_and_after_its_work_does_nothing_twice() {
    let mut world = world().await;
    let mut machine = world.active_machine("gpu-01").await;
    assert_eq!(machine.effects(), 1);

    // Before it came: it is done when there is an agent again.
    machine.agent.kill();
    let before = world.probe(&machine).await;
    machine.agent.start();
    assert_eq!(succeeded_once(&world, &before).await["deliveries"], 1);
    assert_eq!(machine.effects(), 2);

    // In the middle of the first, with the second taken and not begun.
    machine.hold();
    let (during, taken) = (world.probe(&machine).await, world.probe(&machine).await);
    begun(&machine, 3).await;
    world.task_is(&during, "running").await;
    journal_says(&machine, &taken, "taken").await;
    machine.agent.kill();
    machine.release();
    machine.agent.start();
    interrupted_once(&world, &during).await;
    // Nobody began it, so it is handed out once more when its lease is over.
    assert_eq!(succeeded_once(&world, &taken).await["deliveries"], 2);
    assert_eq!(machine.effects(), 4);

    // Done, written down, and not told, because nobody listens; then killed.
    machine.hold();
    let after = world.probe(&machine).await;
    begun(&machine, 5).await;
    world.server.kill();
    machine.release();
    journal_says(&machine, &after, "finished").await;
    machine.agent.kill();
    world.server.spawn();
    world.server.ready().await;
    machine.agent.start();
    succeeded_once(&world, &after).await;
    journal_says(&machine, &after, "told").await;

    // Killed and started many times over, with nothing to do: all is as it was.
    for _ in 0..5 {
        machine.agent.kill();
        machine.agent.start();
    }
    let last = world.probe(&machine).await;
    succeeded_once(&world, &last).await;
    for task in [&before, &during, &taken, &after] {
        ended_once(&world, task).await;
    }
    assert_eq!(machine.effects(), 6);
}

#[tokio::test]
async fn a_gateway_that_is_killed_with_work_queued_handed_out_and_running_loses_and_repeats_nothing() {
    let mut world = world().await;
    let mut machine = world.active_machine("gpu-01").await;
    machine.hold();
    let (running, handed_out) = (world.probe(&machine).await, world.probe(&machine).await);
    begun(&machine, 2).await;
    world.task_is(&running, "running").await;
    world.task_is(&handed_out, "dispatched").await;
    machine.agent.signal(Signal::SIGSTOP);
    let queued = world.probe(&machine).await;
    world.server.kill();
    world.server.spawn();
    world.server.ready().await;
    machine.agent.signal(Signal::SIGCONT);
    machine.release();
    for task in [&running, &handed_out, &queued] {
        succeeded_once(&world, task).await;
    }
    assert_eq!(machine.effects(), 4);

    // Asked to stop in an orderly way, too.
    machine.hold();
    let running = world.probe(&machine).await;
    begun(&machine, 5).await;
    assert_eq!(world.server.stop().await, Some(0));
    machine.release();
    journal_says(&machine, &running, "finished").await;
    world.server.spawn();
    world.server.ready().await;
    succeeded_once(&world, &running).await;
    assert_eq!(machine.effects(), 5);
    assert!(machine.agent.runs());
}

/// Open again, for new connections.
async fn wire_restore(wire: &Wire) {
    wire.set(Flow::Cut);
    wire.ended().await;
    wire.set(Flow::Open);
}

#[tokio::test]
async fn an_answer_that_is_lost_on_the_way_is_made_good_without_a_second_effect() {
    let world = world().await;
    let wire = Wire::to(&world.server.node_url).await;
    let mut machine = world.joined_machine("gpu-01").await;
    machine.use_url(&wire.url);
    machine.agent.start();
    world.activate(&machine).await;

    // The task is handed out and never arrives: it goes out again when the node says that it does not have it.
    wire.set(Flow::AnswersLost);
    let lost = world.probe(&machine).await;
    world.task_is(&lost, "dispatched").await;
    eventually("its lease is over", || async {
        let sql = "SELECT count(*) FROM node_tasks WHERE state = 'dispatched' AND lease_until < now()";
        (world.count(sql).await == 1).then_some(())
    })
    .await;
    wire_restore(&wire).await;
    let ended = succeeded_once(&world, &lost).await;
    assert!(ended["deliveries"].as_i64().unwrap() >= 2, "{ended}");
    assert_eq!(machine.effects(), 2);

    // The result arrives and nobody learns that it did: it is told again, and counts once.
    machine.hold();
    let told = world.probe(&machine).await;
    begun(&machine, 3).await;
    world.task_is(&told, "running").await;
    wire.set(Flow::AnswersLost);
    machine.release();
    world.task_is(&told, "succeeded").await;
    assert_eq!(machine.agent.journal(&told).as_deref(), Some("finished"));
    wire_restore(&wire).await;
    journal_says(&machine, &told, "told").await;
    succeeded_once(&world, &told).await;

    // The same, and the agent is killed before it can learn it.
    machine.hold();
    let killed = world.probe(&machine).await;
    begun(&machine, 4).await;
    wire.set(Flow::AnswersLost);
    machine.release();
    world.task_is(&killed, "succeeded").await;
    machine.agent.kill();
    wire.set(Flow::Open);
    machine.agent.start();
    journal_says(&machine, &killed, "told").await;
    succeeded_once(&world, &killed).await;

    // The wire is cut in the middle and the result told when it is whole again.
    machine.hold();
    let cut = world.probe(&machine).await;
    begun(&machine, 5).await;
    wire.set(Flow::Cut);
    machine.release();
    journal_says(&machine, &cut, "finished").await;
    assert_eq!(world.task(&cut).await["finished_at"], Value::Null);
    wire.set(Flow::Open);
    succeeded_once(&world, &cut).await;
    assert_eq!(machine.effects(), 5);
}
