//! The words of 1.0, kept as they were sent: both sides of today understand them, and say them as 1.0 did.

use std::{collections::BTreeSet, path::Path};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use node_contract_1_0::messages as old;
use node_proto::{catalog, contract as new};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

fn message(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("messages").join(format!("{name}.json"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
    serde_json::from_str(&text).unwrap()
}

/// Read, and written as it was: nothing lost, and nothing added that nobody asked for.
fn same<T: Serialize + DeserializeOwned>(whose: &str, name: &str) {
    let read: T =
        serde_json::from_value(message(name)).unwrap_or_else(|error| panic!("{whose} {name}: {error}"));
    assert_eq!(serde_json::to_value(read).unwrap(), message(name), "{whose} {name}");
}

macro_rules! both {
    ($($name:literal: $old:ty, $new:ty;)*) => {{
        $(same::<$old>("1.0", $name); same::<$new>("current", $name);)*
        BTreeSet::from([$($name.to_owned()),*])
    }};
}

#[test]
fn every_message_of_1_0_is_read_and_written_the_same_by_both_versions() {
    let seen = both! {
        "join_info": old::JoinInfo, new::JoinInfo;
        "enroll_request": old::EnrollRequest, new::EnrollRequest;
        "enrolled": old::Enrolled, new::Enrolled;
        "renew_request": old::RenewRequest, new::RenewRequest;
        "renewed": old::Renewed, new::Renewed;
        "trust": old::Trust, new::Trust;
        "keyset": old::Keyset, node_proto::Keyset;
        "wait_query": old::WaitQuery, new::WaitQuery;
        "waited": old::Waited, new::Waited;
        "task": old::Task, node_proto::Task;
        "progress": old::Progress, new::Progress;
        "progress_answer": old::ProgressAnswer, new::ProgressAnswer;
        "result_succeeded": old::TaskResult, new::TaskResult;
        "result_failed": old::TaskResult, new::TaskResult;
        "result_refused": old::TaskResult, new::TaskResult;
        "result_answer": old::ResultAnswer, new::ResultAnswer;
        "heartbeat": old::Heartbeat, new::Heartbeat;
        "heartbeat_answer": old::HeartbeatAnswer, new::HeartbeatAnswer;
        "error_answer": old::ErrorAnswer, Value;
        "drain_input": old::DrainInput, catalog::DrainInput;
        "topology_discover_input": old::TopologyDiscoverInput, catalog::TopologyDiscoverInput;
        "health_probe_input": old::HealthProbeInput, catalog::HealthProbeInput;
        "topology": Value, catalog::Topology;
        "health_report": Value, catalog::HealthReport;
    };
    let dir = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("messages")).unwrap();
    let kept = dir.map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned());
    assert_eq!(kept.collect::<BTreeSet<_>>(), seen, "a message that no test reads");
}

#[test]
fn what_1_0_signed_is_believed_by_both_versions() {
    let pinned = Ed25519KeyPair::from_seed_unchecked(&[9; 32]).unwrap().public_key().as_ref().to_vec();
    let now = "2026-03-01T12:05:00Z".parse().unwrap();

    let trust: old::Trust = serde_json::from_value(message("trust")).unwrap();
    let keyset = trust.keyset.open(&pinned, 5).unwrap();
    assert_eq!(serde_json::to_value(&keyset).unwrap(), message("keyset"));
    let waited: old::Waited = serde_json::from_value(message("waited")).unwrap();
    let task = waited.tasks[0].accept(&keyset, message("task")["node_id"].as_str().unwrap(), now).unwrap();
    assert_eq!(serde_json::to_value(&task).unwrap(), message("task"));

    let trust: new::Trust = serde_json::from_value(message("trust")).unwrap();
    let keyset = trust.keyset.open(&pinned).unwrap();
    assert_eq!(serde_json::to_value(&keyset).unwrap(), message("keyset"));
    let waited: new::Waited = serde_json::from_value(message("waited")).unwrap();
    let node = message("task")["node_id"].as_str().unwrap().parse().unwrap();
    let (task, _) = waited.tasks[0].accept(&keyset, node, now, now).unwrap();
    assert_eq!(serde_json::to_value(&task).unwrap(), message("task"));
}

#[test]
fn what_is_said_since_1_1_does_not_stop_a_reader_of_1_0() {
    let heartbeat = new::Heartbeat {
        keyset_serial: Some(7),
        authority_ids: Some(Vec::new()),
        clock_offset_ms: Some(-12),
        ..serde_json::from_value(message("heartbeat")).unwrap()
    };
    let read: old::Heartbeat = serde_json::from_value(json!(heartbeat)).unwrap();
    assert_eq!(json!(read), message("heartbeat"));

    let answer = new::HeartbeatAnswer {
        renew_now: Some(true),
        keyset_serial: Some(7),
        authority_ids: Some(Vec::new()),
        ..serde_json::from_value(message("heartbeat_answer")).unwrap()
    };
    let read: old::HeartbeatAnswer = serde_json::from_value(json!(answer)).unwrap();
    assert_eq!(json!(read), message("heartbeat_answer"));

    let query = new::WaitQuery {
        holding: Some(String::new()),
        ..serde_json::from_value(message("wait_query")).unwrap()
    };
    let read: old::WaitQuery = serde_json::from_value(json!(query)).unwrap();
    assert_eq!(json!(read), message("wait_query"));
}

#[test]
fn the_versions_differ_by_one_minor_one() {
    assert_eq!(node_contract_1_0::CONTRACT, new::PREVIOUS_CONTRACT);
    assert_eq!(node_contract_1_0::CONTRACT_HEADER, new::CONTRACT_HEADER);
    assert_eq!(node_contract_1_0::TIME_HEADER, new::TIME_HEADER);
}
