//! Who loses a shell, when, and what happens when nobody can say.

use std::time::Duration;

use futures_util::{StreamExt as _, future::join_all, stream};
use serde_json::{Value, json};
use testkit::{Person, Tenant, World, eventually_within, made_up_key};
use tokio_tungstenite::tungstenite::{Error, http::header};

use super::{
    Team,
    client::{LATER, Said, Terminal, close_code, connect_with, request},
    slice,
};

const MINUTE: Duration = Duration::from_secs(60);

/// Makes somebody a member of the team's project who may enter a machine.
async fn guest(world: &World, team: &Team, person: Person, machine: &str) -> Tenant {
    person.add_key("laptop", &made_up_key()).await;
    world.join(&person, &team.org, "member").await;
    let ann = &team.ann;
    let member = format!("/api/v1/projects/{}/members/{}", ann.project, person.id);
    ann.api().put(&member, json!({ "role": "member" })).await.expect(200);
    let grants = ann.path(&format!("/{machine}/grants"));
    ann.api().post(&grants, json!({ "user_id": person.id })).await.expect(201);
    Tenant { person, project: ann.project.clone() }
}

/// Leaves a shell behind.
async fn shell_start(world: &World, tenant: &Tenant, machine: &str) -> String {
    let mut terminal = Terminal::open(&world.server, tenant, machine).await;
    terminal.run("true").await;
    terminal.session.clone()
}

#[tokio::test]
async fn who_may_not_enter_any_more_loses_a_shell_that_nobody_is_attached_to_within_a_minute() {
    let world = World::start_simulated().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let team = Team::new(&world).await;
    let ann = &team.ann;
    let id = ann.active(slice(1)).await;
    let mut guests = Vec::new();
    for name in ["grant", "role", "left", "stays"] {
        guests.push(guest(&world, &team, world.person(name).await, &id).await);
    }
    let (disabled, account) = world.local_person("disabled").await;
    guests.insert(0, guest(&world, &team, disabled, &id).await);
    let mut shells = Vec::new();
    for tenant in guests.iter().chain([ann]) {
        shells.push(shell_start(&world, tenant, &id).await);
    }
    let [grant, role, left] = [1, 2, 3].map(|at| guests[at].person.id.clone());
    ann.api().delete(&ann.path(&format!("/{id}/grants/{grant}"))).await.expect(204);
    let member = |person: &str| format!("/api/v1/projects/{}/members/{person}", ann.project);
    ann.api().put(&member(&role), json!({ "role": "viewer" })).await.expect(200);
    ann.api().delete(&format!("/api/v1/orgs/{}/members/{left}", team.org)).await.expect(204);
    world.admin.post(&format!("/api/v1/platform/accounts/{account}/disable"), json!({})).await.expect(200);
    let open = || async {
        let path = ann.path(&format!("/{id}/terminal-sessions?open=true"));
        let sessions = ann.api().get(&path).await.expect(200);
        let ids = sessions["items"].as_array().unwrap().iter();
        ids.map(|session| session["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let ended = || async { (open().await.len() == 2).then_some(()) };
    eventually_within(MINUTE, "four shells have ended", ended).await;
    assert_eq!(open().await, shells[4..], "those of people who may enter go on");
    let mut own = own_again(&world, ann, &id, &shells[5]).await;
    own.type_in("echo still-$((40 + 2))\n").await;
    own.until("still-42").await;
}

async fn own_again(world: &World, tenant: &Tenant, machine: &str, session: &str) -> Terminal {
    let body = json!({ "session_id": session, "access": "take_over" });
    let (token, session) = super::client::token(tenant, machine, body).await;
    Terminal::attach(&world.server, machine, &token, session, 0).await.expect("the shell")
}

#[tokio::test]
async fn tokens_that_nobody_used_are_gone_soon_however_many_there_are() {
    const TOKENS: usize = 300;
    const MINTED_AT_ONCE: usize = 16;
    let world = World::start_simulated().await;
    let nodes = world.simulated(&[("h200-8", 1)]).await;
    let path = format!("/api/v1/platform/nodes/{}/log-token", nodes.ids[0]);
    let minted = (0..TOKENS).map(|_| async { world.admin.post(&path, json!({})).await.expect(201) });
    let minted: Vec<_> = stream::iter(minted).buffered(MINTED_AT_ONCE).collect().await;
    assert_eq!(minted.len(), TOKENS);
    let expired = "UPDATE node_log_tokens SET created_at = now() - interval '61 seconds', expires_at = now() - interval '1 second'";
    world.db.sql(expired).await;
    let gone = || async { (world.count("SELECT count(*) FROM node_log_tokens").await == 0).then_some(()) };
    // Less than the time between three turns of the job, each of which would take a part of them.
    eventually_within(MINUTE / 2, "all are gone", gone).await;
}

#[tokio::test]
async fn an_address_has_so_many_attempts_whatever_tokens_it_shows() {
    const ATTEMPTS: usize = 60;
    let world = World::start().await;
    let key = "rate_limit.websocket_attempts_per_minute";
    // What the product sets, and tests lift.
    world.db.sql(&format!("DELETE FROM policy_values WHERE key = '{key}'")).await;
    world.policy(key, 20).await;
    let kinds = ["terminal", "ssh", "node-logs"];
    let attempts = (0..ATTEMPTS).map(|number| {
        let kind = kinds[number % kinds.len()];
        let mut request = request(&world.server, &format!("/ws/{kind}/x"));
        let (protocol, made_up) = (format!("gpuaas.{kind}.v1"), format!("Bearer gpterm_{}", "A".repeat(43)));
        request.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, protocol.parse().unwrap());
        request.headers_mut().insert(header::AUTHORIZATION, made_up.parse().unwrap());
        async {
            match connect_with(&world.server, request).await {
                Ok(socket) => close_code(socket).await.unwrap_or_default(),
                Err(Error::Http(answer)) => {
                    let seconds: u64 = answer.headers()["retry-after"].to_str().unwrap().parse().unwrap();
                    assert!((1..=60).contains(&seconds), "{seconds}");
                    let body: Value = serde_json::from_slice(answer.body().as_deref().unwrap()).unwrap();
                    assert_eq!(body["error"]["code"], "rate_limit_exceeded");
                    answer.status().as_u16()
                }
                Err(other) => panic!("{other}"),
            }
        }
    });
    let codes = join_all(attempts).await;
    let count = |wanted: u16| codes.iter().filter(|code| **code == wanted).count();
    assert!(count(4401) >= 20 && count(429) >= 20 && count(4401) + count(429) == ATTEMPTS, "{codes:?}");
}

/// How often a connection was paused.
async fn pauses_count(world: &World) -> u64 {
    let metrics = reqwest::get(format!("{}/metrics", world.server.ops)).await.unwrap().text().await.unwrap();
    let line = metrics.lines().find_map(|line| line.strip_prefix("terminal_connections_paused_total "));
    line.map_or(0, |number| number.parse().unwrap())
}

#[tokio::test]
async fn while_the_database_hangs_nothing_passes_nobody_is_dropped_and_who_is_revoked_is_out() {
    let world = World::start_simulated().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let mut ann = world.tenant("ann").await;
    let id = ann.active(slice(1)).await;
    let mut terminal = Terminal::open(&world.server, &ann, &id).await;
    // Nothing is printed after a prompt.
    terminal.run("PS1='wait''ing> '").await;
    terminal.until("waiting> ").await;
    for is_revoked in [false, true] {
        let before = pauses_count(&world).await;
        // Whether somebody may enter a machine cannot be read.
        let mut hanging = world.db.conn(pg::Roles::Admin).await;
        let hang = "BEGIN; LOCK TABLE allocations IN ACCESS EXCLUSIVE MODE";
        sqlx::Executor::execute(&mut hanging, hang).await.unwrap();
        // How soon that is, is tested where the clock is not that of a machine that is busy with other tests.
        let paused = || async { (pauses_count(&world).await > before).then_some(()) };
        eventually_within(LATER, "the terminal is paused", paused).await;
        if !is_revoked {
            terminal.type_in("echo pau''sed\n").await;
            let passed = tokio::time::timeout(Duration::from_secs(2), terminal.next()).await;
            assert!(passed.is_err(), "{passed:?}");
            drop(hanging);
            terminal.until("paused\r\n").await;
            terminal.until("waiting> ").await;
            continue;
        }
        terminal.type_in("touch typed-while-paused\n").await;
        let me = ann.api().get("/api/v1/me").await.expect(200);
        let sign_in = me["session_id"].as_str().unwrap();
        let other = ann.api().with_token(world.idp.token("ann", "other"));
        other.delete(&format!("/api/v1/me/sessions/{sign_in}")).await.expect(204);
        let Said::Control(said) = terminal.next().await else { panic!("output after the end") };
        assert_eq!(said["code"], "revoked", "{said}");
        drop(hanging);
        ann.person.api = other;
    }
    // Nor does what was typed meanwhile reach the shell.
    let mut later = Terminal::open(&world.server, &ann, &id).await;
    assert_eq!(later.run("test -e typed-while-paused || echo nothing").await, "nothing");
}
