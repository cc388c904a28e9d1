//! What a node opens nothing for.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use chrono::TimeDelta;
use node_proto::{grant::Grant, task, text::Base64};
use node_tunnel::OpenError;
use uuid::Uuid;

use super::kit::{Pair, grant, node, now, sign, signer};

#[tokio::test]
async fn what_does_not_prove_a_right_opens_nothing_and_says_why() {
    let pair = Pair::new().await;
    pair.clock.advance(TimeDelta::minutes(1));
    let good = sign(&grant("echo"), &signer(1));
    let forged = sign(&grant("echo"), &signer(2));
    assert_eq!(pair.refused(&forged).await, "bad_signature");
    let unknown = sign(&Grant { signer_version: 4, ..grant("echo") }, &signer(1));
    assert_eq!(pair.refused(&unknown).await, "unknown_signer");
    let foreign = sign(&Grant { node_id: Uuid::from_u128(0xB).into(), ..grant("echo") }, &signer(1));
    assert_eq!(pair.refused(&foreign).await, "wrong_node");
    // Clocks may differ by five minutes.
    let expired = Grant { expires_at: now() - TimeDelta::minutes(4), ..grant("echo") };
    assert_eq!(pair.refused(&sign(&expired, &signer(1))).await, "expired");
    let early = Grant { issued_at: now() + TimeDelta::minutes(7), ..grant("echo") };
    assert_eq!(pair.refused(&sign(&early, &signer(1))).await, "not_yet_valid");
    let mut altered = good.clone();
    altered.payload = Base64(sign(&grant("sink"), &signer(1)).payload.0);
    assert_eq!(pair.refused(&altered).await, "bad_signature");
    // A signature of a task over the same bytes is none of a grant.
    let mut task = good.clone();
    task.signature = Base64(signer(1).sign(&task::signing_bytes(&good.payload.0)).as_ref().to_vec());
    assert_eq!(pair.refused(&task).await, "bad_signature");
    let mut spaced = good.payload.0.clone();
    spaced.push(b' ');
    let mut other_spelling = good.clone();
    let signature = signer(1).sign(&node_proto::grant::signing_bytes(&spaced)).as_ref().to_vec();
    (other_spelling.payload, other_spelling.signature) = (Base64(spaced), Base64(signature));
    assert_eq!(pair.refused(&other_spelling).await, "malformed");
    assert_eq!(pair.targets.attached.load(Ordering::SeqCst), 0);
    pair.tunnel.open(&good).await.unwrap();
}

#[tokio::test]
async fn a_grant_for_one_stream_opens_one_and_is_not_taken_from_before_the_agent_started() {
    let pair = Pair::new().await;
    let once = sign(&grant("echo"), &signer(1));
    let first = pair.tunnel.open(&once).await.unwrap();
    assert_eq!(pair.refused(&once).await, "replayed");
    drop(first);
    assert_eq!(pair.refused(&once).await, "replayed");
    let before = Grant { issued_at: now() - TimeDelta::seconds(1), ..grant("echo") };
    assert_eq!(pair.refused(&sign(&before, &signer(1))).await, "superseded");
    let often = sign(&Grant { single_use: false, ..before }, &signer(1));
    for _ in 0..3 {
        pair.tunnel.open(&often).await.unwrap();
    }
    // Of many that arrive with it at once, one gets in.
    let once = sign(&grant("echo"), &signer(1));
    let tried = futures_util::future::join_all((0..20).map(|_| pair.tunnel.open(&once))).await;
    let mut opened = 0;
    for one in &tried {
        match one {
            Ok(_) => opened += 1,
            Err(OpenError::Refused(reason)) => assert_eq!(reason, "replayed"),
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(opened, 1);
}

#[tokio::test]
async fn a_target_that_is_not_there_is_refused_with_its_code_and_the_tunnel_goes_on() {
    let pair = Pair::new().await;
    assert_eq!(pair.refused(&sign(&grant("absent"), &signer(1))).await, "no_such_target");
    let mut stream = pair.open("echo").await;
    stream.sender.send(Bytes::from_static(b"here")).await.unwrap();
    assert_eq!(stream.receiver.next().await.unwrap().unwrap(), "here");
    assert_eq!(node(), grant("echo").node_id);
}
