//! Running it: health, metrics, logs, configuration, shutdown, the built-in database.

use std::{io::ErrorKind, os::unix::fs::PermissionsExt as _, time::Duration};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use testkit::{Api, Idp, Server, ServerOptions, TestDb, World, eventually, eventually_within, program};

use crate::{
    database_gate::DatabaseGate,
    held::{Held, requests_only},
    tools,
};

/// The children of a process.
fn children(pid: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut all: Vec<u32> = text.split_whitespace().filter_map(|p| p.parse().ok()).collect();
    for task in tasks {
        let text = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        all.extend(text.split_whitespace().filter_map(|p| p.parse::<u32>().ok()));
    }
    all.sort_unstable();
    all.dedup();
    all
}

#[tokio::test]
async fn the_built_in_database_survives_kill_9_of_itself_and_of_the_server_and_stops_with_it() {
    let idp = Idp::start().await;
    let mut server = Server::start_on("", idp.options()).await;
    let ada = server.api().with_token(idp.token("ada", "1"));
    let me = ada.get("/api/v1/me").await.expect(200);

    let postmaster = *children(server.pid()).first().expect("Postgres runs");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(postmaster as i32), Signal::SIGKILL).unwrap();
    eventually_within(Duration::from_secs(60), "the server works again", || async {
        let answer = ada.get("/api/v1/me").await;
        (answer.status == 200 && answer.body["id"] == me["id"]).then_some(())
    })
    .await;

    server.kill();
    server.spawn();
    server.ready().await;
    assert_eq!(ada.get("/api/v1/me").await.expect(200)["id"], me["id"]);

    let postmaster = *children(server.pid()).first().expect("Postgres runs");
    assert_eq!(server.stop().await, Some(0), "{}", server.log());
    assert!(!std::path::Path::new(&format!("/proc/{postmaster}")).exists(), "Postgres stops with the server");
}

#[tokio::test]
async fn readiness_names_each_dependency_and_metrics_count_requests() {
    let world = World::start().await;
    let ops = Api::new(&world.server.ops, None);
    let ready = ops.get("/readyz").await.expect(200);
    let names: Vec<&str> =
        ready["checks"].as_array().unwrap().iter().filter_map(|c| c["name"].as_str()).collect();
    assert!(names.contains(&"postgres") && names.contains(&"roles"), "{ready}");
    assert_eq!(ops.get("/healthz").await.expect(200)["status"], "ok");
    world.admin.get("/api/v1/me").await.expect(200);
    let metrics = ops.get("/metrics").await.text;
    for name in [
        "http_requests_total{endpoint=\"me_get\"",
        "http_request_duration_seconds",
        "db_pool_in_use",
        "outbox_pending",
    ] {
        eventually(name, || async { ops.get("/metrics").await.text.contains(name).then_some(()) }).await;
    }
    assert!(!metrics.contains("Bearer"));
    // Not on the public listener.
    world.server.api().get("/metrics").await.refused(404, "not_found");
    world.server.api().get("/readyz").await.expect(200);
}

#[tokio::test]
async fn the_server_is_warming_while_its_database_is_away_and_says_so() {
    let db = TestDb::create().await;
    let mut gate = DatabaseGate::shut().await;
    let mut server = Server::prepare(&gate.database_section(&db.name), ServerOptions::default());
    server.spawn();
    gate.until_somebody_waits().await;
    let ops = Api::new(&server.ops, None);
    let warming = ops.get("/readyz").await.expect(503);
    assert_eq!(warming["status"], "warming");
    let checks = warming["checks"].as_array().unwrap();
    for name in ["postgres", "roles"] {
        let check = checks.iter().find(|c| c["name"] == name).expect(name);
        assert!(check["state"] == "warming" && check["reason"].is_string(), "{warming}");
    }
    ops.get("/healthz").await.expect(200);

    gate.open();
    server.ready().await;
    assert_eq!(ops.get("/readyz").await.expect(200)["status"], "ready");
    assert_eq!(server.stop().await, Some(0), "{}", server.log());
}

#[tokio::test]
async fn a_server_that_cannot_reach_its_database_gives_up_with_a_clear_message() {
    let dir = tempfile::tempdir().unwrap();
    let database =
        format!("[database]\nurl = \"postgres:///nowhere?host={}&user=x\"\n", dir.path().display());
    let mut server = Server::prepare(&database, ServerOptions::default());
    server.spawn();
    eventually("it gives up with a clear message", || async {
        server.log().contains("the database cannot be reached").then_some(())
    })
    .await;
    assert_eq!(server.stop().await, Some(1), "{}", server.log());
}

#[tokio::test]
async fn logs_are_json_with_the_correlation_id_and_never_hold_a_token() {
    let world = World::start().await;
    let id = "0193b3a0-1111-7000-8000-000000000001";
    let request = world.admin.request(reqwest::Method::GET, "/api/v1/me").header("x-correlation-id", id);
    let answer = world.admin.send(request).await;
    assert_eq!(answer.headers.get("x-correlation-id").unwrap(), id);
    let line = eventually("the request is logged", || async {
        world.server.log().lines().find(|l| l.contains(id)).map(str::to_owned)
    })
    .await;
    let line: Value = serde_json::from_str(&line).expect("one JSON object a line");
    for field in ["timestamp", "level", "service", "role", "correlation_id"] {
        assert!(!line[field].is_null(), "{field} is missing: {line}");
    }
    let log = world.server.log();
    assert!(!log.contains(world.admin.token.as_deref().unwrap()));
    assert!(log.lines().all(|l| serde_json::from_str::<Value>(l).is_ok()), "every line is JSON:\n{log}");
}

#[tokio::test]
async fn a_stop_drains_requests_and_reports_stopping() {
    let mut world = World::start_with(requests_only()).await;
    let org = world.org("acme").await;
    let path = format!("/api/v1/orgs/{org}/projects");
    let ops = Api::new(&world.server.ops, None);
    let address = world.server.base.trim_start_matches("http://").to_owned();
    let refused = || async {
        tokio::net::TcpStream::connect(&address)
            .await
            .is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused)
    };

    let chain = format!("SELECT 1 FROM audit_chains WHERE org_id = '{}'", &org[4..]);
    let mut held = Held::rows(&world.db, &chain).await;
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..3 {
        let (api, path) = (world.admin.clone(), path.clone());
        tasks.spawn(async move { api.post(&path, json!({ "name": "p", "slug": format!("p{n}") })).await });
    }
    held.until_waiting(3).await;

    world.server.signal(Signal::SIGTERM);
    let stopping = eventually("it says that it stops", || async {
        let answer = ops.get("/readyz").await;
        (answer.status == 503).then_some(answer.body)
    })
    .await;
    assert_eq!(stopping["status"], "stopping");
    eventually("new connections are refused", || async { refused().await.then_some(()) }).await;
    assert_eq!(tasks.try_join_next().map(|done| done.unwrap().text), None, "the requests are still held");
    held.release().await;

    for answer in tasks.join_all().await {
        answer.expect(201);
    }
    // A second SIGTERM changes nothing.
    assert_eq!(world.server.stop().await, Some(0), "{}", world.server.log());
    assert!(refused().await);
    assert_eq!(world.count("SELECT count(*) FROM projects WHERE slug IN ('p0', 'p1', 'p2')").await, 3);
    assert!(world.server.log().contains("stopped"));
}

#[tokio::test]
async fn configuration_problems_are_all_reported_and_secrets_are_masked() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c.toml");
    std::fs::write(
        &file,
        "[server]\nlisten = \"x\"\nnope = 1\n[database]\nurl = \"postgres://u:hunter2@h/d\"\n",
    )
    .unwrap();
    let mut command = tools::command(program("gpuaasd"));
    command.arg("--config").arg(&file).args(["config", "check"]);
    let output = tools::run(command, Duration::from_secs(20)).await;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text.contains("2 problem(s)") && text.contains("server.listen") && text.contains("server.nope"),
        "{text}"
    );
    std::fs::write(&file, "[database]\nurl = \"postgres://u:hunter2@h/d\"\n").unwrap();
    make_private(&file);
    let mut command = tools::command(program("gpuaasd"));
    command.arg("--config").arg(&file).args(["config", "print"]);
    let output = tools::run(command, Duration::from_secs(20)).await;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && text.contains("database.url = [secret]") && !text.contains("hunter2"),
        "{text}"
    );
}

fn make_private(path: &std::path::Path) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// Whatever holds a secret is refused when others can read it, and the message says what to do.
#[tokio::test]
async fn secret_files_that_others_can_read_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        path
    };
    let with_password = file("c.toml", "[database]\nurl = \"postgres://u:hunter2@h/d\"\n");
    let mut command = tools::command(program("gpuaasd"));
    command.arg("--config").arg(&with_password).args(["config", "check"]);
    let output = tools::run(command, Duration::from_secs(20)).await;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && text.contains("database.url") && text.contains("chmod 600"),
        "{text}"
    );
    assert!(!text.contains("hunter2"), "{text}");

    let key = file("key.pem", "-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n");
    let secret = file("payments.key", "sk_test_hunter2\n");
    let master = file("master.key", &"ab".repeat(32));
    let of = |name: &str, value: &std::path::Path| (format!("GPUAAS__{name}"), value.display().to_string());
    let payments = |key: &std::path::Path, webhook: &std::path::Path| {
        vec![
            ("GPUAAS__PAYMENTS__PROVIDER".to_owned(), "stripe".to_owned()),
            of("PAYMENTS__SECRET_KEY_FILE", key),
            of("PAYMENTS__WEBHOOK_SECRET_FILES", webhook),
        ]
    };
    let private = file("private.key", "whsec_1\n");
    make_private(&private);
    let cert = file("cert.pem", "");
    let cases = [
        ("master.key", vec![of("AUTH__MASTER_KEY_FILE", &master)]),
        ("payments.key", payments(&secret, &private)),
        ("payments.key", payments(&private, &secret)),
        ("key.pem", vec![of("SERVER__TLS__CERT_FILE", &cert), of("SERVER__TLS__KEY_FILE", &key)]),
    ];
    for (name, env) in cases {
        let db = TestDb::create().await;
        let database = format!("[database]\nurl = \"{}\"\n", db.url());
        let mut server = Server::prepare(&database, ServerOptions { env, ..ServerOptions::default() });
        server.spawn();
        eventually("it says what is wrong", || async {
            let log = server.log();
            assert!(!log.contains("hunter2"));
            (log.contains(name) && log.contains("chmod 600")).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn traces_reach_the_collector_as_children_of_the_caller_s_span() {
    let (seen, mut received) = tokio::sync::mpsc::unbounded_channel::<axum::body::Bytes>();
    let collector = axum::Router::new().route(
        "/v1/traces",
        axum::routing::post(move |body: axum::body::Bytes| {
            let seen = seen.clone();
            async move {
                let _ = seen.send(body);
            }
        }),
    );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move { axum::serve(listener, collector).await });
    let config = format!("[telemetry]\notlp_endpoint = \"{endpoint}\"\n");
    let world = World::start_with(ServerOptions { config, ..ServerOptions::default() }).await;
    let trace: [u8; 16] =
        [0x4b, 0xf9, 0x2f, 0x35, 0x77, 0xb3, 0x4d, 0xa6, 0xa3, 0xce, 0x92, 0x9d, 0x0e, 0x0e, 0x47, 0x36];
    let header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    world
        .admin
        .send(world.admin.request(reqwest::Method::GET, "/api/v1/me").header("traceparent", header))
        .await
        .expect(200);
    let found = tokio::time::timeout(Duration::from_secs(30), async {
        while let Some(body) = received.recv().await {
            if body.windows(16).any(|w| w == trace) {
                return body;
            }
        }
        panic!("the collector ended");
    })
    .await
    .expect("the span arrives");
    assert!(found.windows(7).any(|w| w == b"request"));
    serving.abort();
}

#[tokio::test]
async fn tls_is_served_when_configured_and_a_bad_certificate_is_a_clear_error() {
    let db = TestDb::create().await;
    let dir = tempfile::tempdir().unwrap();
    let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    let mut command = tools::command("openssl");
    command.args([
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
    ]);
    command
        .args([
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
            "-keyout",
        ])
        .arg(&key)
        .arg("-out")
        .arg(&cert);
    assert!(tools::run(command, Duration::from_secs(20)).await.status.success());
    let settings = |cert: &std::path::Path| {
        let of = |name: &str, value: String| (format!("GPUAAS__SERVER__{name}"), value);
        vec![of("TLS__CERT_FILE", cert.display().to_string()), of("TLS__KEY_FILE", key.display().to_string())]
    };
    let server =
        Server::start_with(&db, ServerOptions { env: settings(&cert), ..ServerOptions::default() }).await;
    let trusted = reqwest::Certificate::from_pem(&std::fs::read(&cert).unwrap()).unwrap();
    let client = testkit::http_client().tls_certs_only([trusted]).build().unwrap();
    let url = server.base.replace("http://", "https://");
    let answer = client.get(format!("{url}/healthz")).send().await.expect("TLS works");
    assert_eq!(answer.status().as_u16(), 200);

    std::fs::write(dir.path().join("bad.pem"), "no certificate").unwrap();
    let mut env = settings(&dir.path().join("bad.pem"));
    let objects = server.dir.path().join("data/objects");
    env.push(("GPUAAS__OBJECTS__DIRECTORY".to_owned(), objects.display().to_string()));
    let mut broken = Server::prepare(
        &format!("[database]\nurl = \"{}\"\n", db.url()),
        ServerOptions { env, ..ServerOptions::default() },
    );
    broken.spawn();
    eventually("it says what is wrong", || async {
        broken.log().contains("TLS certificate or key cannot be used").then_some(())
    })
    .await;
    broken.kill();
}
