//! Objects in a bucket of SeaweedFS.

use objects::{ObjectError, Objects, S3};
use testkit::S3Server;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use crate::behaviour::{
    key, objects_are_written_once_read_listed_and_deleted, of_many_writers_of_one_key_one_succeeds,
    what_is_too_large_is_refused,
};

fn bucket(server: &S3Server, prefix: &str, secret: &str) -> Objects {
    bucket_at(&server.endpoint(), prefix, secret)
}

fn bucket_at(endpoint: &str, prefix: &str, secret: &str) -> Objects {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let s3 = S3 {
        endpoint: endpoint.parse().unwrap(),
        region: "us-east-1".to_owned(),
        bucket: S3Server::BUCKET.to_owned(),
        prefix: prefix.to_owned(),
        access_key_id: S3Server::KEY_ID.to_owned(),
        secret_access_key: kernel::Secret::new(secret.to_owned()),
    };
    // Test clients are made here, and only here.
    #[allow(clippy::disallowed_methods)]
    let http = reqwest::Client::builder().timeout(std::time::Duration::from_secs(5)).build().unwrap();
    Objects::in_bucket(&s3, http).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_behaves_and_keeps_to_its_prefix() {
    let mut server = S3Server::start().await;
    let objects = bucket(&server, "installation-1", S3Server::SECRET);
    objects_are_written_once_read_listed_and_deleted(&objects).await;
    of_many_writers_of_one_key_one_succeeds(&objects).await;
    what_is_too_large_is_refused(&objects).await;
    let whole = bucket(&server, "", S3Server::SECRET);
    assert!(whole.exists(&key("installation-1/race/object")).await.unwrap());
    assert!(!whole.exists(&key("race/object")).await.unwrap());

    let stranger = bucket(&server, "", "not the secret");
    let refused = stranger.get(&key("installation-1/race/object")).await;
    assert!(matches!(refused, Err(ObjectError::Failed(_))), "{refused:?}");

    // Away is neither absent nor existing.
    server.stop();
    let (existing, absent) = (key("race/object"), key("new"));
    let (away, new) = tokio::join!(objects.get(&existing), objects.put_new(&absent, "x".into()));
    assert!(matches!(away, Err(ObjectError::Failed(_) | ObjectError::TimedOut)), "{away:?}");
    assert!(matches!(new, Err(ObjectError::Failed(_) | ObjectError::TimedOut)), "{new:?}");
}

/// A service that knows no conditions: it takes whatever is put. Answers its address.
async fn service_without_conditions() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                // Each request comes whole: its content is a few bytes.
                let mut request = vec![0; 64 * 1024];
                while socket.read(&mut request).await.is_ok_and(|length| length > 0) {
                    let answer = "HTTP/1.1 200 OK\r\netag: \"1\"\r\ncontent-length: 0\r\n\r\n";
                    if socket.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    format!("http://{address}")
}

#[tokio::test]
async fn a_service_that_overwrites_is_found_before_anything_is_put() {
    let objects = bucket_at(&service_without_conditions().await, "", S3Server::SECRET);
    let refused = objects.check_keeps().await;
    assert!(matches!(refused, Err(ObjectError::Overwrites)), "{refused:?}");
    let refused = objects.put_new(&key("a"), "x".into()).await;
    assert!(matches!(refused, Err(ObjectError::Overwrites)), "{refused:?}");
}
