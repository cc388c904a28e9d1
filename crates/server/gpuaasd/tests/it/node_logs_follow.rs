//! Logs of nodes on demand: from the request for a token to the agent and back.

use std::{io::Write as _, time::Duration};

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use testkit::{Answer, Api, NODE_SECRET, Person, Server, World, eventually};
use tokio::{net::TcpStream, time::Instant};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Error, Message,
        client::IntoClientRequest as _,
        http::{HeaderValue, Request, header},
    },
};

/// Nothing here takes longer.
const SOON: Duration = Duration::from_secs(20);
/// What revocation may take.
const REVOKED_WITHIN: Duration = Duration::from_secs(5);
const PROTOCOL: &str = "gpuaas.node-logs.v1";
const NOT_ACCEPTED: Option<u16> = Some(4401);

async fn mint(api: &Api, node: &str, body: Value) -> Answer {
    api.post(&format!("/api/v1/platform/nodes/{node}/log-token"), body).await
}

async fn token(api: &Api, node: &str, body: Value) -> String {
    let made = mint(api, node, body).await.expect(201);
    assert_eq!(made["url"], format!("/ws/node-logs/{node}"));
    made["token"].as_str().unwrap().to_owned()
}

fn request(server: &Server, path: &str) -> Request<()> {
    let url = format!("{}{path}", server.base.replace("http://", "ws://"));
    let mut request = url.into_client_request().unwrap();
    request.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL));
    request
}

fn with_token(server: &Server, node: &str, token: &str) -> Request<()> {
    let mut request = request(server, &format!("/ws/node-logs/{node}"));
    request.headers_mut().insert(header::AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
    request
}

async fn connect(server: &Server, request: Request<()>) -> Result<Log, Error> {
    let stream = TcpStream::connect(server.base.trim_start_matches("http://")).await.unwrap();
    let connecting = tokio_tungstenite::client_async(request, stream);
    let connected = tokio::time::timeout(SOON, connecting).await.expect("an answer");
    connected.map(|(socket, _)| Log { socket, lines: Vec::new(), close: None })
}

struct Log {
    socket: WebSocketStream<TcpStream>,
    lines: Vec<Value>,
    close: Option<u16>,
}

impl Log {
    async fn open(server: &Server, api: &Api, node: &str, body: Value) -> Self {
        let token = token(api, node, body).await;
        connect(server, with_token(server, node, &token)).await.expect("a WebSocket")
    }

    /// The next message; none at the end.
    async fn next(&mut self) -> Option<Value> {
        loop {
            let message = tokio::time::timeout(SOON, self.socket.next()).await.expect("something is said");
            match message? {
                Ok(Message::Text(text)) => return Some(serde_json::from_str(&text).unwrap()),
                Ok(Message::Close(frame)) => self.close = frame.map(|frame| frame.code.into()),
                Ok(_) => {}
                Err(_) => return None,
            }
        }
    }

    /// Reads until the log is live; gives the lines before.
    async fn live(&mut self) -> Vec<Value> {
        loop {
            let said = self.next().await.expect("the log is live");
            match said["type"].as_str().unwrap() {
                "lines" => self.lines.extend(said["lines"].as_array().unwrap().iter().cloned()),
                "live" => return std::mem::take(&mut self.lines),
                _ => panic!("{said}"),
            }
        }
    }

    /// The first line that says this.
    async fn line(&mut self, text: &str) -> Value {
        loop {
            let found = |line: &Value| line["message"].as_str().unwrap().contains(text);
            if let Some(at) = self.lines.iter().position(found) {
                return self.lines.drain(..=at).next_back().unwrap();
            }
            let said = self.next().await.unwrap_or_else(|| panic!("{text:?} is not logged"));
            assert_eq!(said["type"], "lines", "{said}");
            self.lines.extend(said["lines"].as_array().unwrap().iter().cloned());
        }
    }

    /// Reads to the end: the last message that is no line.
    async fn until_end(&mut self) -> Value {
        let mut last = Value::Null;
        while let Some(said) = self.next().await {
            if said["type"] != "lines" {
                last = said;
            }
        }
        last
    }

    async fn close_code(mut self) -> Option<u16> {
        self.until_end().await;
        self.close
    }
}

/// Has an agent log something; gives what.
async fn work(world: &World, node: &str) -> String {
    let collect = json!({ "parts": ["memory"] });
    let task = world.admin.post(&format!("/api/v1/platform/nodes/{node}/collect"), collect).await.expect(202);
    task["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_line_of_a_simulated_agent_appears_as_it_is_logged_on_any_replica() {
    let world = World::start_simulated().await;
    let nodes = world.simulated(&[("h200-8", 1)]).await;
    let node = &nodes.ids[0];
    let mut log = Log::open(&world.server, &world.admin, node, json!({})).await;
    let recent = log.live().await;
    assert!(recent.iter().any(|line| line["message"].as_str().unwrap().contains("in contact")), "{recent:?}");
    let replica = world.replica().await;
    let mut other = Log::open(&replica, &world.admin, node, json!({ "lines": 0 })).await;
    assert_eq!(other.live().await, Vec::<Value>::new());
    let task = work(&world, node).await;
    for log in [&mut log, &mut other] {
        let line = log.line(&format!("{task} is done")).await;
        assert_eq!((&line["level"], &line["source"]), (&json!("info"), &json!("tasks")));
    }
    // A machine that does not exist has no kernel.
    let mut kernel = Log::open(&world.server, &world.admin, node, json!({ "source": "kernel" })).await;
    let said = kernel.until_end().await;
    assert_eq!((&said["code"], &said["retryable"]), (&json!("no_such_log"), &json!(false)), "{said}");
}

#[tokio::test]
async fn the_logs_of_a_real_agent_and_its_kernel_come_live_and_without_secrets() {
    let world = World::start().await;
    let machine = world.active_machine("gpu-01").await;
    let id = machine.id().to_owned();
    let mut log = Log::open(&world.server, &world.admin, &id, json!({ "lines": 1000 })).await;
    log.live().await;
    let task = world.probe(&machine).await;
    log.line(&format!("{task} is done")).await;

    let kmsg = machine.path("dev/kmsg");
    let says = |text: &str| {
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(&kmsg).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    };
    says("6,1,1000,-;old\n6,2,2000,-;booted\n");
    let body = json!({ "source": "kernel", "lines": 1 });
    let mut kernel = Log::open(&world.server, &world.admin, &id, body).await;
    let recent = kernel.live().await;
    assert_eq!(recent.iter().map(|line| &line["message"]).collect::<Vec<_>>(), [&json!("booted")]);
    says(&format!("3,3,3000,-;mount: password={NODE_SECRET} refused\n"));
    let line = kernel.line("mount").await;
    assert_eq!((&line["level"], &line["source"]), (&json!("error"), &json!("kernel")));
    assert_eq!(line["message"], "mount: password=[redacted] refused");

    // A reader that stops reading fills its own window and nothing else.
    let before = memory_kib(&world.server);
    for batch in 0..20 {
        let lines: String = (0..10_000)
            .map(|n| {
                format!(
                    "6,{},4000,-;line of a noisy kernel, which says the same again and again\n",
                    4 + batch * 10_000 + n
                )
            })
            .collect();
        says(&lines);
    }
    let task = world.probe(&machine).await;
    log.line(&format!("{task} is done")).await;
    let grown = memory_kib(&world.server).saturating_sub(before);
    assert!(grown < 16 * 1024, "the server grew by {grown} KiB");
    for _ in 0..10 {
        kernel.line("noisy").await;
    }

    // Reading the fleet is enough for the agent's log, and not for the kernel's.
    let ops = world.person("ops").await;
    world.grant_platform_role(&ops, "platform_ops").await;
    let mut agents = Log::open(&world.server, &ops.api, &id, json!({ "lines": 0 })).await;
    agents.live().await;
    let mut kernels =
        Log::open(&world.server, &ops.api, &id, json!({ "source": "kernel", "lines": 0 })).await;
    kernels.live().await;
    let began = Instant::now();
    roles_set(&world, &ops, json!(["platform_auditor"])).await;
    assert_eq!(kernels.until_end().await["code"], "revoked");
    assert!(began.elapsed() < REVOKED_WITHIN, "{:?}", began.elapsed());
    let task = world.probe(&machine).await;
    agents.line(&format!("{task} is done")).await;
}

fn memory_kib(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn tokens_are_for_operators_once_in_their_time_and_never_in_a_url() {
    let world = World::start_simulated().await;
    let nodes = world.simulated(&[("h200-8", 2)]).await;
    let (node, other, server) = (&nodes.ids[0], &nodes.ids[1], &world.server);
    let (tenant, viewer) = (world.tenant("ann").await, world.person("vic").await);
    let org = world.org("acme").await;
    world.join(&viewer, &org, "viewer").await;
    for api in [tenant.api(), &viewer.api] {
        mint(api, node, json!({})).await.refused(403, "admin_required");
    }
    let auditor = world.person("aud").await;
    world.grant_platform_role(&auditor, "platform_auditor").await;
    mint(&auditor.api, node, json!({ "source": "kernel" })).await.refused(403, "insufficient_permissions");
    let mut log = Log::open(server, &auditor.api, node, json!({})).await;
    log.live().await;
    let admin = &world.admin;
    mint(admin, node, json!({ "source": "/etc/shadow" })).await.refused(400, "validation_error");
    mint(admin, node, json!({ "lines": 1001 })).await.refused(400, "validation_error");
    mint(admin, "node_01997f9e1f2b7000800000000000000a", json!({})).await.refused(404, "not_found");

    let used = token(admin, node, json!({})).await;
    connect(server, with_token(server, node, &used)).await.unwrap().live().await;
    let refused = async |node: &str, token: &str| {
        connect(server, with_token(server, node, token)).await.unwrap().close_code().await
    };
    assert_eq!(refused(node, &used).await, NOT_ACCEPTED, "a replay");
    let foreign = token(admin, node, json!({})).await;
    assert_eq!(refused(other, &foreign).await, NOT_ACCEPTED, "another node");
    let late = token(admin, node, json!({})).await;
    world
        .db
        .sql("UPDATE node_log_tokens SET created_at = now() - interval '61 seconds', expires_at = now() - interval '1 second'")
        .await;
    assert_eq!(refused(node, &late).await, NOT_ACCEPTED, "expired");
    for bad in ["x", "gpterm_", &format!("gpterm_{}", "A".repeat(43))] {
        assert_eq!(refused(node, bad).await, NOT_ACCEPTED, "{bad}");
    }
    let path = format!("/ws/node-logs/{node}");
    let fresh = token(admin, node, json!({})).await;
    let in_url = connect(server, request(server, &format!("{path}?token={fresh}"))).await;
    let Err(Error::Http(answer)) = in_url else { panic!("a token in a URL") };
    assert_eq!(answer.status().as_u16(), 400);
    let mut strange = with_token(server, node, &fresh);
    strange.headers_mut().insert(header::ORIGIN, "https://evil.example.org".parse().unwrap());
    let Err(Error::Http(answer)) = connect(server, strange).await else { panic!("another origin") };
    assert_eq!(answer.status().as_u16(), 403);
    // A token for a log opens no terminal.
    let mut terminal = request(server, "/ws/terminal/alloc_01997f9e1f2b7000800000000000000a");
    terminal.headers_mut().insert(header::AUTHORIZATION, format!("Bearer {fresh}").parse().unwrap());
    terminal.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, "gpuaas.terminal.v1".parse().unwrap());
    assert_eq!(connect(server, terminal).await.unwrap().close_code().await, NOT_ACCEPTED);
    // As a browser would; and whoever says anything is let go.
    let mut browser = request(server, &path);
    let list = format!("{PROTOCOL}, token.{fresh}");
    browser.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, list.parse().unwrap());
    browser.headers_mut().insert(header::ORIGIN, server.base.parse().unwrap());
    let mut page = connect(server, browser).await.expect("a page of ours");
    page.live().await;
    page.socket.send(Message::text("hello")).await.unwrap();
    page.until_end().await;

    let audited = world.count("SELECT count(*) FROM audit_logs WHERE action = 'node.log_token_create'").await;
    assert!(audited >= 5, "{audited} tokens are in the audit trail");
    for secret in [&used, &foreign, &late, &fresh] {
        let kept = secret.trim_start_matches("gpterm_");
        assert!(!server.log().contains(kept) && !nodes.log().contains(kept), "a token is in a log");
    }
}

async fn roles_set(world: &World, person: &Person, roles: Value) {
    let path = format!("/api/v1/platform/users/{}/roles", person.id);
    world.admin.put(&path, json!({ "roles": roles })).await.expect(200);
}

#[tokio::test]
async fn an_operator_who_loses_the_right_loses_the_log_within_seconds() {
    let world = World::start_simulated().await;
    let nodes = world.simulated(&[("h200-8", 1)]).await;
    let node = &nodes.ids[0];
    let (ops, kept) = (world.person("ops").await, world.person("kept").await);
    for person in [&ops, &kept] {
        world.grant_platform_role(person, "platform_ops").await;
    }
    let mut untouched = Log::open(&world.server, &kept.api, node, json!({})).await;
    untouched.live().await;
    let mut log = Log::open(&world.server, &ops.api, node, json!({ "lines": 0 })).await;
    log.live().await;

    // Signed out.
    let me = ops.api.get("/api/v1/me").await.expect(200);
    let other = ops.api.with_token(world.idp.token("ops", "other"));
    let began = Instant::now();
    let session = me["session_id"].as_str().unwrap();
    other.delete(&format!("/api/v1/me/sessions/{session}")).await.expect(204);
    let said = log.until_end().await;
    assert_eq!((&said["code"], &said["retryable"]), (&json!("revoked"), &json!(false)), "{said}");
    assert!(began.elapsed() < REVOKED_WITHIN, "{:?}", began.elapsed());

    // No operator any more.
    let mut log = Log::open(&world.server, &other, node, json!({})).await;
    log.live().await;
    let began = Instant::now();
    roles_set(&world, &ops, json!([])).await;
    assert_eq!(log.until_end().await["code"], "revoked");
    assert!(began.elapsed() < REVOKED_WITHIN, "{:?}", began.elapsed());
    mint(&other, node, json!({})).await.refused(403, "admin_required");

    let task = work(&world, node).await;
    untouched.line(&format!("{task} is done")).await;
}

#[tokio::test]
async fn when_the_agent_or_the_gateway_goes_the_reader_is_told_to_come_again() {
    let mut world = World::start_simulated().await;
    let mut nodes = world.simulated(&[("h200-8", 1)]).await;
    let node = nodes.ids[0].clone();
    let mut log = Log::open(&world.server, &world.admin, &node, json!({})).await;
    log.live().await;
    nodes.kill();
    let said = log.until_end().await;
    assert_eq!((&said["code"], &said["retryable"]), (&json!("tunnel_lost"), &json!(true)), "{said}");
    nodes.start();
    let mut log = eventually("the node is back", || async {
        let mut log = Log::open(&world.server, &world.admin, &node, json!({ "lines": 0 })).await;
        (log.next().await? == json!({ "type": "live" })).then_some(log)
    })
    .await;
    world.server.stop().await;
    let said = log.until_end().await;
    // Its tunnels end with it.
    assert!(["gateway_restarting", "tunnel_lost"].contains(&said["code"].as_str().unwrap()), "{said}");
    assert_eq!(said["retryable"], true);
}
