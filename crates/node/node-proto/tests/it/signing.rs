//! The signed bytes are a contract between programs of different ages: they are pinned here, byte by byte, and
//! every way of bending a task is refused.

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use chrono::{DateTime, TimeDelta, Utc};
use kernel::ids::{NodeId, TaskId};
use node_proto::{
    Keyset, KeysetError, SignedKeyset, SignedTask, SignerKey, SignerState, Task, TaskError, canonical,
    keyset, task, text::Base64,
};
use serde_json::json;
use uuid::Uuid;

fn key(seed: u8) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap()
}

fn at(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

const NOW: &str = "2026-03-01T12:00:00Z";

fn node() -> NodeId {
    Uuid::from_u128(0xA).into()
}

fn sample() -> Task {
    Task {
        task_id: TaskId::from(Uuid::from_u128(0x7)),
        node_id: node(),
        task_type: "node.drain".to_owned(),
        params: json!({ "reason": "maintenance" }),
        attempt: 1,
        issued_at: at(NOW),
        expires_at: at(NOW) + TimeDelta::minutes(10),
        correlation_id: Uuid::from_u128(0xC),
        traceparent: None,
        signer_version: 3,
    }
}

fn sign(task: &Task, by: &Ed25519KeyPair) -> SignedTask {
    let payload = task.canonical().unwrap();
    let signature = by.sign(&task::signing_bytes(&payload)).as_ref().to_vec();
    SignedTask { payload: Base64(payload), signer_version: task.signer_version, signature: Base64(signature) }
}

fn keyset() -> Keyset {
    let public_key = Base64(key(1).public_key().as_ref().to_vec());
    let signers = vec![SignerKey { signer_version: 3, state: SignerState::Active, public_key }];
    Keyset { serial: 5, issued_at: at(NOW), signers }
}

fn accept(signed: &SignedTask) -> Result<(), TaskError> {
    signed.accept(&keyset(), node(), at(NOW), at(NOW) - TimeDelta::days(1)).map(|_| ())
}

#[test]
fn the_signed_bytes_are_pinned() {
    let signed = sign(&sample(), &key(1));
    let payload = String::from_utf8(signed.payload.0.clone()).unwrap();
    assert_eq!(
        payload,
        r#"{"attempt":1,"correlation_id":"00000000-0000-0000-0000-00000000000c","expires_at":"2026-03-01T12:10:00Z","issued_at":"2026-03-01T12:00:00Z","node_id":"node_0000000000000000000000000000000a","params":{"reason":"maintenance"},"signer_version":3,"task_id":"task_00000000000000000000000000000007","task_type":"node.drain"}"#
    );
    assert_eq!(accept(&signed), Ok(()));
}

#[test]
fn a_task_with_any_field_altered_is_refused() {
    let good = sign(&sample(), &key(1));
    let altered: [fn(&mut Task); 10] = [
        |t| t.task_id = Uuid::from_u128(8).into(),
        |t| t.node_id = Uuid::from_u128(11).into(),
        |t| t.task_type = "node.reboot".to_owned(),
        |t| t.params = json!({ "reason": "other" }),
        |t| t.attempt = 2,
        |t| t.issued_at += TimeDelta::seconds(1),
        |t| t.expires_at += TimeDelta::days(1),
        |t| t.correlation_id = Uuid::from_u128(0xD),
        |t| t.traceparent = Some("00-1-1-01".to_owned()),
        |t| t.signer_version = 4,
    ];
    for (n, alter) in altered.iter().enumerate() {
        let mut task = sample();
        alter(&mut task);
        let forged = SignedTask { payload: Base64(task.canonical().unwrap()), ..good.clone() };
        assert_eq!(accept(&forged), Err(TaskError::BadSignature), "field {n}");
    }
    for at in 0..good.payload.0.len() {
        let mut forged = good.clone();
        forged.payload.0[at] ^= 1;
        assert_eq!(accept(&forged), Err(TaskError::BadSignature), "byte {at}");
    }
}

#[test]
fn only_believed_signers_count_and_a_signature_of_another_kind_does_not() {
    assert_eq!(accept(&sign(&sample(), &key(2))), Err(TaskError::BadSignature), "somebody else's key");
    let retired = sign(&Task { signer_version: 2, ..sample() }, &key(1));
    assert_eq!(accept(&retired), Err(TaskError::UnknownSigner));
    let payload = sample().canonical().unwrap();
    let signature = Base64(key(1).sign(&keyset::signing_bytes(&payload)).as_ref().to_vec());
    let other_kind = SignedTask { payload: Base64(payload), signer_version: 3, signature };
    assert_eq!(accept(&other_kind), Err(TaskError::BadSignature));
    // The version beside the payload cannot point to another signer than the one that signed.
    let moved = SignedTask { signer_version: 4, ..sign(&sample(), &key(1)) };
    assert_eq!(accept(&moved), Err(TaskError::UnknownSigner));
}

#[test]
fn a_correctly_signed_task_is_still_refused_when_it_is_not_for_here_and_now() {
    let cases = [
        (Task { node_id: Uuid::from_u128(9).into(), ..sample() }, TaskError::WrongNode),
        (Task { expires_at: at(NOW) - TimeDelta::minutes(5), ..sample() }, TaskError::Expired),
        (Task { issued_at: at(NOW) + TimeDelta::minutes(6), ..sample() }, TaskError::NotYetValid),
        (Task { issued_at: at(NOW) - TimeDelta::days(2), ..sample() }, TaskError::NotYetValid),
        (Task { task_type: "shell.run".to_owned(), ..sample() }, TaskError::UnknownType),
        (Task { params: json!({ "reason": "x", "and": "more" }), ..sample() }, TaskError::BadParameters),
        (Task { params: json!({}), ..sample() }, TaskError::BadParameters),
    ];
    for (task, refusal) in cases {
        assert_eq!(accept(&sign(&task, &key(1))), Err(refusal), "{task:?}");
    }
}

#[test]
fn another_spelling_of_a_signed_task_is_refused_even_from_the_signer() {
    let spaced = serde_json::to_vec_pretty(&sample()).unwrap();
    let signature = Base64(key(1).sign(&task::signing_bytes(&spaced)).as_ref().to_vec());
    let signed = SignedTask { payload: Base64(spaced), signer_version: 3, signature };
    assert_eq!(accept(&signed), Err(TaskError::Malformed));
}

#[test]
fn a_field_of_a_later_version_does_not_stop_an_older_reader() {
    let mut value = serde_json::to_value(sample()).unwrap();
    value["added_later"] = json!({ "z": 1, "a": 2 });
    let payload = canonical::encode(&value).unwrap();
    let signature = Base64(key(1).sign(&task::signing_bytes(&payload)).as_ref().to_vec());
    assert_eq!(accept(&SignedTask { payload: Base64(payload), signer_version: 3, signature }), Ok(()));
}

#[test]
fn a_list_of_signers_counts_only_from_the_pinned_key_and_never_goes_back() {
    let signed = |keyset: &Keyset, by: &Ed25519KeyPair| {
        let document = canonical::encode(keyset).unwrap();
        let signature = Base64(by.sign(&keyset::signing_bytes(&document)).as_ref().to_vec());
        SignedKeyset { document: Base64(document), signature }
    };
    let (root, pinned) = (key(9), key(9).public_key().as_ref().to_vec());
    let current = keyset();
    assert_eq!(signed(&current, &root).open(&pinned), Ok(current.clone()));
    assert_eq!(signed(&current, &key(1)).open(&pinned), Err(KeysetError::BadSignature));
    let older = Keyset { serial: 4, ..current.clone() };
    assert_eq!(signed(&older, &root).open_newer(&pinned, &current), Err(KeysetError::Older));
    let newer = Keyset { serial: 6, ..current.clone() };
    assert_eq!(signed(&newer, &root).open_newer(&pinned, &current), Ok(newer));
}
