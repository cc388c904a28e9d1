//! A connection that says nothing does not keep its place.

use std::time::Duration;

use testkit::{ServerOptions, World};
use tokio::{io::AsyncReadExt, io::AsyncWriteExt, net::TcpStream};

#[tokio::test]
async fn silent_connections_give_their_places_back() {
    let setting = |name: &str, value: &str| (format!("GPUAAS__SERVER__{name}"), value.to_owned());
    let env = vec![setting("HEADER_READ_TIMEOUT_SECONDS", "1"), setting("MAX_CONNECTIONS", "20")];
    let world = World::start_with(ServerOptions { env, ..ServerOptions::default() }).await;
    let address = world.server.base.trim_start_matches("http://").to_owned();
    let mut silent = Vec::new();
    for n in 0..60 {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        if n % 2 == 0 {
            // The beginning of an HTTP/2 preface, and no more.
            stream.write_all(b"PRI").await.unwrap();
        }
        silent.push(stream);
    }
    for mut stream in silent {
        let mut rest = Vec::new();
        let closed = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut rest)).await;
        assert!(closed.is_ok(), "the server hangs up on a connection that stays silent");
    }
    world.admin.get("/api/v1/me").await.expect(200);
}

#[tokio::test]
async fn a_path_that_is_not_text_gets_the_error_envelope() {
    let world = World::start().await;
    let address = world.server.base.trim_start_matches("http://").to_owned();
    let mut stream = TcpStream::connect(&address).await.unwrap();
    stream.write_all(b"GET /api/v1/orgs/%ff HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    tokio::time::timeout(Duration::from_secs(20), stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("invalid_request"), "{answer}");
}
