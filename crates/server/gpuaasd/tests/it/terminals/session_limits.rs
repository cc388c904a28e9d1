//! What policy bounds: how many sessions a machine has, and how long one of them may do nothing.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use testkit::{ServerOptions, Tenant, World, eventually, eventually_within, invariants};
use tokio::time::{Instant, timeout};
use tokio_tungstenite::tungstenite::Error;

use super::{
    client::{LATER, Said, Terminal, connect_with, mint, request, token},
    recorded::sealed,
    slice,
};

/// A client says so often that it is there.
const PING_EVERY: Duration = Duration::from_secs(10);

async fn sessions(tenant: &Tenant, allocation: &str, query: &str) -> Vec<Value> {
    let path = tenant.path(&format!("/{allocation}/terminal-sessions{query}"));
    tenant.api().get(&path).await.expect(200)["items"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_machine_has_so_many_open_sessions_however_many_are_asked_for_at_once() {
    const LIMIT: usize = 2;
    let world = World::start_simulated().await;
    world.policy("terminal.sessions_per_allocation", LIMIT as i64).await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let (id, other) = (ann.active(slice(1)).await, ann.active(slice(1)).await);
    let mut first = Terminal::open(&world.server, &ann, &id).await;
    first.run("true").await;
    let asked = join_all((0..8).map(|_| mint(&ann, &id, json!({})))).await;
    let (given, refused): (Vec<_>, Vec<_>) = asked.into_iter().partition(|answer| answer.status == 201);
    assert_eq!(given.len(), LIMIT - 1, "one is open already");
    for answer in refused {
        let said = answer.refused(422, "unprocessable");
        let error = &said["error"];
        assert_eq!(error["details"]["limit"], LIMIT, "{said}");
        assert!(error["suggestion"].as_str().unwrap().contains("allocations terminals list"), "{said}");
    }
    assert_eq!(sessions(&ann, &id, "?open=true").await.len(), LIMIT);
    // An open session is attached to all the same, and other machines have a limit of their own.
    token(&ann, &id, json!({ "session_id": first.session, "access": "watch" })).await;
    token(&ann, &other, json!({})).await;

    // One that ends makes place for another.
    first.type_in("exit\n").await;
    assert_eq!(first.until_end().await["reason"], "exited");
    let made = eventually("there is a place", || async {
        Some(mint(&ann, &id, json!({})).await).filter(|answer| answer.status == 201)
    });
    let made = made.await.body;
    let (token, session) = (made["token"].as_str().unwrap(), made["session_id"].as_str().unwrap());
    let mut next = Terminal::attach(&world.server, &id, token, session.to_owned(), 0).await.unwrap();
    next.run("true").await;
    invariants::hold(&world.db).await;
}

/// The lowest that the policy allows is a minute.
#[tokio::test]
async fn a_session_in_which_nothing_happens_is_ended_and_one_that_prints_goes_on() {
    const SECONDS: i64 = 60;
    let world = World::start_simulated().await;
    world.policy("terminal.idle_seconds", SECONDS).await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(slice(1)).await;
    let mut prints = Terminal::open(&world.server, &ann, &id).await;
    prints.run("(while sleep 5; do echo tick; done &)").await;
    let mut idle = Terminal::open(&world.server, &ann, &id).await;
    idle.run("true").await;
    let typed = Instant::now();
    idle.run("true").await;
    // That somebody is attached, and says so, is not that something happens.
    let bound = typed + Duration::from_secs(SECONDS.unsigned_abs()) + LATER;
    let end = loop {
        assert!(Instant::now() < bound, "the session goes on");
        match timeout(PING_EVERY, idle.next()).await {
            Err(_) => {
                for terminal in [&mut idle, &mut prints] {
                    terminal.control(json!({ "type": "ping" })).await;
                }
            }
            Ok(Said::Control(said)) if said["type"] != "pong" => break said,
            Ok(Said::Control(_) | Said::Output) => {}
            Ok(Said::Gone) => panic!("it ends without a reason"),
        }
    };
    assert_eq!(end, json!({ "type": "session_closed", "reason": "idle" }));
    assert!(typed.elapsed() >= Duration::from_secs(SECONDS.unsigned_abs()), "{:?}", typed.elapsed());

    let noted = || async {
        let all = sessions(&ann, &id, "").await;
        let ended = all.iter().find(|session| session["id"] == idle.session.as_str()).unwrap();
        (ended["end_reason"] == "idle").then_some(())
    };
    eventually_within(LATER, "the end is in the history", noted).await;
    let open = sessions(&ann, &id, "?open=true").await;
    assert_eq!(open.len(), 1);
    assert_eq!(open[0]["id"], prints.session.as_str());
    prints.reattach(&world.server, &ann, &id).await.run("true").await;
    let recording = sealed(&ann, &id, &idle.session).await;
    assert_eq!(recording["complete"], true, "{recording}");
    assert_eq!(recording["output_bytes"], idle.received);
}

#[tokio::test]
async fn a_gateway_that_is_full_refuses_connections_and_serves_the_rest() {
    let config = "[terminal_gateway]\nmax_connections = 1\n".to_owned();
    let world = World::start_simulated_with(ServerOptions { config, ..ServerOptions::default() }).await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(slice(1)).await;
    let mut first = Terminal::open(&world.server, &ann, &id).await;
    first.run("true").await;
    let attempt = || connect_with(&world.server, request(&world.server, &format!("/ws/terminal/{id}")));
    let Err(Error::Http(answer)) = attempt().await else { panic!("a connection more than there may be") };
    assert_eq!(answer.status(), 503);
    assert!(answer.headers().contains_key("retry-after"));
    let said: Value = serde_json::from_slice(answer.body().as_deref().unwrap()).unwrap();
    assert_eq!(said["error"]["code"], "service_unavailable");
    // Who is connected stays so, and the API answers.
    assert_eq!(sessions(&ann, &id, "?open=true").await.len(), 1);
    assert_eq!(first.run("echo still here").await, "still here");
    first.hang_up().await;
    eventually("there is a place", || async { attempt().await.is_ok().then_some(()) }).await;
}
