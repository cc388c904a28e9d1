//! Malformed, oversized, slow and hostile input: clear 4xx, bounded memory, the server stays up.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use testkit::{ServerOptions, World};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

async fn resident_kib(pid: u32) -> u64 {
    let status = tokio::fs::read_to_string(format!("/proc/{pid}/status")).await.unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn bad_bodies_get_clear_refusals() {
    let world = World::start().await;
    let org = world.org("acme").await;
    let path = format!("/api/v1/orgs/{org}/projects");
    let send = |body: Vec<u8>, kind: &'static str| {
        let request = world.admin.request(Method::POST, &path).header("content-type", kind).body(body);
        world.admin.send(request)
    };
    let json_kind = "application/json";
    let nested = format!("{{\"name\": {}1{}}}", "[".repeat(20_000), "]".repeat(20_000));
    for (body, code) in [
        (b"{".to_vec(), "invalid_request"),
        (b"{\"name\": \"x\", \"slug\": \"x\"} trailing".to_vec(), "invalid_request"),
        (b"\xff\xfe{}".to_vec(), "invalid_request"),
        (b"{\"name\": \"\xff\", \"slug\": \"x\"}".to_vec(), "invalid_request"),
        (nested.into_bytes(), "validation_error"),
        (b"[]".to_vec(), "validation_error"),
        (b"null".to_vec(), "validation_error"),
        (b"".to_vec(), "invalid_request"),
        (b"{\"name\": 7, \"slug\": \"x\"}".to_vec(), "validation_error"),
        (b"{\"name\": \"x\"}".to_vec(), "validation_error"),
        (b"{\"name\": \"x\", \"slug\": \"x\", \"admin\": true}".to_vec(), "validation_error"),
        (b"{\"name\": \"x\", \"name\": \"y\", \"slug\": \"x\"}".to_vec(), "validation_error"),
        ("{\"name\": \"a\\u0000b\", \"slug\": \"x\"}".into(), "validation_error"),
        ("{\"name\": \"a\\u202eb\", \"slug\": \"x\"}".into(), "validation_error"),
    ] {
        let shown = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
        let answer = send(body, json_kind).await;
        assert_eq!((answer.status, answer.code()), (400, code), "{shown}: {}", answer.text);
        assert!(answer.body["error"]["suggestion"].is_string());
        assert!(answer.body["error"]["correlation_id"].is_string());
    }
    send(b"name=x".to_vec(), "application/x-www-form-urlencoded")
        .await
        .refused(415, "unsupported_media_type");
    let huge = send(vec![b'a'; 5 << 20], json_kind).await.refused(413, "payload_too_large");
    assert_eq!(huge["error"]["details"]["limit_bytes"], 65_536);
    assert_eq!(
        world
            .count(&format!("SELECT count(*) FROM projects WHERE org_id = '{}' AND slug = 'x'", &org[4..]))
            .await,
        0
    );
}

#[tokio::test]
async fn sql_in_names_is_only_a_name() {
    let world = World::start().await;
    let org = world.org("acme").await;
    let path = format!("/api/v1/orgs/{org}/projects");
    let name = "Robert'); DROP TABLE projects;-- $1 \" \\";
    let made = world.admin.post(&path, json!({ "name": name, "slug": "bobby" })).await.expect(201);
    assert_eq!(made["name"], name);
    for query in [
        "?cursor=' OR 1=1 --",
        "?page_size=1;DROP TABLE projects",
        "?nosuch=1",
        "?page_size=1&page_size=2",
        "?page_size=201",
    ] {
        let answer = world.admin.get(&format!("{path}{query}")).await;
        assert_eq!(answer.status, 400, "{query}: {}", answer.text);
    }
    let odd = world.admin.get("/api/v1/projects/proj_' OR '1'='1").await;
    assert_eq!(odd.status, 400, "{}", odd.text);
    assert!(world.count("SELECT count(*) FROM projects").await > 0);
}

#[tokio::test]
async fn bad_credentials_paths_methods_and_headers_get_clear_refusals() {
    let world = World::start().await;
    let nobody = world.server.api();
    nobody.get("/api/v1/me").await.refused(401, "token_missing");
    let huge = "a".repeat(5000);
    for token in ["", "x", "a.b.c", "..", "null", huge.as_str()] {
        let answer = nobody.with_token(token).get("/api/v1/me").await;
        assert_eq!(answer.status, 401, "{token}: {}", answer.text);
    }
    let basic = nobody.request(Method::GET, "/api/v1/me").header("authorization", "Basic YTpi");
    nobody.send(basic).await.refused(401, "token_invalid");
    nobody.get("/api/v1/nothing").await.refused(404, "not_found");
    nobody.get("/../../etc/passwd").await.refused(404, "not_found");
    let method = nobody.delete("/api/v1/me").await;
    assert!(method.headers.get("allow").unwrap().to_str().unwrap().contains("GET"));
    method.refused(405, "method_not_allowed");
    let given = nobody
        .request(Method::GET, "/api/v1/me")
        .header("x-correlation-id", "0193b3a0-0000-7000-8000-000000000001");
    let answer = nobody.send(given).await;
    assert_eq!(answer.body["error"]["correlation_id"], "0193b3a0-0000-7000-8000-000000000001");
    let forged =
        nobody.request(Method::GET, "/api/v1/me").header("x-correlation-id", "<script>alert(1)</script>");
    assert!(!nobody.send(forged).await.text.contains("script"));
    let bad_version = world
        .admin
        .request(Method::PATCH, "/api/v1/me")
        .header("if-match", "latest")
        .json(&json!({ "name": "x" }));
    world.admin.send(bad_version).await.refused(400, "validation_error");
}

/// Sends all that the server takes, and gives what it says until it hangs up, which it must do in time.
async fn until_hung_up(address: &str, head: &str) -> String {
    let talk = async {
        let (mut read, mut write) = TcpStream::connect(address).await.unwrap().into_split();
        // The server may hang up before it took everything; unread bytes then reset the connection.
        let send = async {
            let _ = write.write_all(head.as_bytes()).await;
        };
        let mut answer = Vec::new();
        let receive = async {
            if let Err(error) = read.read_to_end(&mut answer).await {
                assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
            }
        };
        tokio::join!(send, receive);
        String::from_utf8_lossy(&answer).into_owned()
    };
    let patience = Duration::from_secs(5);
    tokio::time::timeout(patience, talk).await.expect("the server refuses and hangs up by itself")
}

#[tokio::test]
async fn huge_headers_are_refused_and_memory_stays_bounded() {
    // Only the limits on size may end these connections, not the limit on time.
    let setting = ("GPUAAS__SERVER__HEADER_READ_TIMEOUT_SECONDS".to_owned(), "30".to_owned());
    let world = World::start_with(ServerOptions { env: vec![setting], ..ServerOptions::default() }).await;
    let address = world.server.base.trim_start_matches("http://").to_owned();
    let before = resident_kib(world.server.pid()).await;
    let start = "GET /api/v1/me HTTP/1.1\r\nhost: x\r\n";
    let line = format!("x-filler: {}\r\n", "a".repeat(8000));
    // A little too much, far too much, and a head that never ends.
    for (lines, end) in [(9, "\r\n"), (200, "\r\n"), (2000, "")] {
        for _ in 0..10 {
            let text = until_hung_up(&address, &format!("{start}{}{end}", line.repeat(lines))).await;
            assert!(text.is_empty() || text.starts_with("HTTP/1.1 431 "), "{lines} lines: {text}");
        }
    }
    // Small enough to be read whole, so that the answer always arrives.
    let many = until_hung_up(&address, &format!("{start}{}\r\n", "x-n: 1\r\n".repeat(200))).await;
    assert!(many.starts_with("HTTP/1.1 431 "), "{many}");
    let grown = resident_kib(world.server.pid()).await.saturating_sub(before);
    assert!(grown < 50_000, "grew by {grown} KiB");
    world.admin.get("/api/v1/me").await.expect(200);
}

#[tokio::test]
async fn slow_clients_are_cut_off_and_others_are_served_meanwhile() {
    // `[server]` may stand in the file once, so the setting goes in by the environment.
    let setting = ("GPUAAS__SERVER__HEADER_READ_TIMEOUT_SECONDS".to_owned(), "1".to_owned());
    let world = World::start_with(ServerOptions { env: vec![setting], ..ServerOptions::default() }).await;
    let address = world.server.base.trim_start_matches("http://").to_owned();
    let mut crowd = Vec::new();
    for _ in 0..200 {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        stream.write_all(b"GET /api/v1/me HTTP/1.1\r\nhost: x\r\nx-slow: ").await.unwrap();
        crowd.push(stream);
    }
    world.admin.get("/api/v1/me").await.expect(200);
    for mut stream in crowd {
        let mut answer = Vec::new();
        let ended = tokio::time::timeout(Duration::from_secs(15), stream.read_to_end(&mut answer)).await;
        assert!(ended.is_ok(), "the server hangs up on a client that never finishes its headers");
    }
    world.admin.get("/api/v1/me").await.expect(200);
}

#[tokio::test]
async fn a_body_that_trickles_is_given_up() {
    let world = World::start().await;
    let address = world.server.base.trim_start_matches("http://").to_owned();
    let token = world.admin.token.clone().unwrap();
    let mut stream = TcpStream::connect(&address).await.unwrap();
    let head = format!(
        "PATCH /api/v1/me HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{{"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = vec![0; 4096];
    let n = tokio::time::timeout(Duration::from_secs(20), stream.read(&mut answer))
        .await
        .expect("an answer in time")
        .unwrap();
    let text = String::from_utf8_lossy(&answer[..n]).into_owned();
    assert!(text.starts_with("HTTP/1.1 400"), "{text}");
}

#[tokio::test]
async fn a_header_that_may_be_given_once_is_refused_when_it_is_given_twice() {
    let world = World::start().await;
    let address = world.server.base.trim_start_matches("http://").to_owned();
    let token = world.admin.token.clone().unwrap();
    for (path, first, second) in [
        ("/api/v1/me", "host: x", "host: y"),
        ("/api/v1/openapi.json", "host: x", "host: x"),
        ("/.well-known/openid-configuration", "host: x", "Host: y"),
        ("/api/v1/me", "host: x\r\nauthorization: Bearer nobody", "authorization: Bearer somebody"),
        ("/api/v1/me", "host: x\r\nx-idempotency-key: a", "x-idempotency-key: b"),
    ] {
        let head = format!(
            "GET {path} HTTP/1.1\r\n{first}\r\n{second}\r\nconnection: close\r\nx-token: {token}\r\n\r\n"
        );
        let text = until_hung_up(&address, &head).await;
        assert!(
            text.starts_with("HTTP/1.1 400") && text.contains("more than once"),
            "{first}, {second}: {text}"
        );
    }
}

#[tokio::test]
async fn json_in_another_charset_is_refused_and_a_wrong_parameter_is_named() {
    let world = World::start().await;
    let org = world.org("acme").await;
    let path = format!("/api/v1/orgs/{org}/projects");
    let body = r#"{"name": "x", "slug": "x"}"#;
    for kind in ["application/json; charset=utf-16", "application/json;charset=\"latin1\""] {
        let request = world.admin.request(Method::POST, &path).header("content-type", kind).body(body);
        world.admin.send(request).await.refused(415, "unsupported_media_type");
    }
    let kind = "application/json; charset=UTF-8";
    let request = world.admin.request(Method::POST, &path).header("content-type", kind).body(body);
    world.admin.send(request).await.expect(201);
    for (query, field) in [("page_size=0", "page_size"), ("cursor=zz", "cursor")] {
        let lists = [path.clone(), "/api/v1/platform/audit".to_owned(), "/api/v1/me/sessions".to_owned()];
        for path in lists {
            let answer = world.admin.get(&format!("{path}?{query}")).await;
            assert_eq!(answer.status, 400, "{path}: {}", answer.text);
            assert_eq!(
                answer.body["error"]["details"]["fields"][0]["field"], field,
                "{path}: {}",
                answer.text
            );
        }
    }
}
