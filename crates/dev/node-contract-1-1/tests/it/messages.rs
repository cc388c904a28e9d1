//! The words of 1.1, kept as they were sent: both sides of today understand them, and say them as 1.1 did.

use std::{collections::BTreeSet, path::Path};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use node_contract_1_1::messages as old;
use node_proto::{catalog, contract as new};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

fn message(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("messages").join(format!("{name}.json"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
    serde_json::from_str(&text).unwrap()
}

/// Read, and written as it was: nothing lost, and nothing added that nobody asked for.
fn same<T: Serialize + DeserializeOwned>(whose: &str, name: &str, message: Value) {
    let read: T =
        serde_json::from_value(message.clone()).unwrap_or_else(|error| panic!("{whose} {name}: {error}"));
    assert_eq!(serde_json::to_value(read).unwrap(), message, "{whose} {name}");
}

macro_rules! both {
    ($($name:literal: $old:ty, $new:ty;)*) => {{
        $(same::<$old>("1.1", $name, message($name)); same::<$new>("current", $name, message($name));)*
        BTreeSet::from([$($name.to_owned()),*])
    }};
}

#[test]
fn every_message_of_1_1_is_read_and_written_the_same_by_both_versions() {
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
        "result_drained": old::TaskResult, new::TaskResult;
        "result_refused": old::TaskResult, new::TaskResult;
        "result_answer": old::ResultAnswer, new::ResultAnswer;
        "heartbeat": old::Heartbeat, new::Heartbeat;
        "heartbeat_answer": old::HeartbeatAnswer, new::HeartbeatAnswer;
        "log_batch": old::LogBatch, new::LogBatch;
        "logs_taken": old::LogsTaken, new::LogsTaken;
        "error_answer": old::ErrorAnswer, Value;
        "drain_input": old::DrainInput, catalog::DrainInput;
        "self_update_input": old::SelfUpdateInput, catalog::SelfUpdateInput;
        "provision_user_input": old::ProvisionUserInput, catalog::ProvisionUserInput;
        "provision_user_with_sudo_input": old::ProvisionUserInput, catalog::ProvisionUserInput;
        "deprovision_user_input": Value, catalog::DeprovisionUserInput;
        "install_authorized_keys_input": Value, catalog::InstallAuthorizedKeysInput;
        "vm_provision_input": Value, catalog::VmProvisionInput;
        "vm_release_input": Value, catalog::VmReleaseInput;
        "vm_restart_input": Value, catalog::VmRestartInput;
        "vm_authorized_keys_input": Value, catalog::VmAuthorizedKeysInput;
        "topology_discover_input": old::TopologyDiscoverInput, catalog::TopologyDiscoverInput;
        "health_probe_input": old::HealthProbeInput, catalog::HealthProbeInput;
        "self_updated": Value, catalog::SelfUpdated;
        "provisioned_user": Value, catalog::ProvisionedUser;
        "provisioned_vm": Value, catalog::ProvisionedVm;
        "released_vm": Value, catalog::ReleasedVm;
        "restarted_vm": Value, catalog::RestartedVm;
        "topology": Value, catalog::Topology;
        "health_report": Value, catalog::HealthReport;
    };
    let dir = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("messages")).unwrap();
    let kept = dir.map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned());
    assert_eq!(kept.collect::<BTreeSet<_>>(), seen, "a message that no test reads");
}

#[test]
fn what_1_1_may_leave_out_is_not_missed() {
    macro_rules! without {
        ($($name:literal: $old:ty, $new:ty, $fields:expr;)*) => {$(
            let mut least = message($name);
            for field in $fields {
                least.as_object_mut().unwrap().remove(field).unwrap();
            }
            same::<$old>("1.1", $name, least.clone());
            same::<$new>("current", $name, least);
        )*};
    }
    without! {
        "wait_query": old::WaitQuery, new::WaitQuery, ["seconds", "room", "holding"];
        "waited": old::Waited, new::Waited, ["renew_now"];
        "heartbeat": old::Heartbeat, new::Heartbeat, ["keyset_serial", "authority_ids", "clock_offset_ms"];
        "heartbeat_answer": old::HeartbeatAnswer, new::HeartbeatAnswer, ["keyset_serial", "authority_ids", "renew_now"];
    }
}

#[test]
fn what_1_1_signed_is_believed_by_both_versions() {
    let pinned = Ed25519KeyPair::from_seed_unchecked(&[9; 32]).unwrap().public_key().as_ref().to_vec();
    let now = "2026-03-01T12:05:00Z".parse().unwrap();

    let trust: old::Trust = serde_json::from_value(message("trust")).unwrap();
    let keyset = trust.keyset.open(&pinned, 5).unwrap();
    assert_eq!(serde_json::to_value(&keyset).unwrap(), message("keyset"));
    let waited: old::Waited = serde_json::from_value(message("waited")).unwrap();
    let task =
        waited.tasks[0].accept(&keyset, message("task")["node_id"].as_str().unwrap(), now, now).unwrap();
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
fn what_is_said_since_1_2_does_not_stop_a_reader_of_1_1() {
    for class in [new::TunnelClass::Interactive, new::TunnelClass::Bulk] {
        let url = "https://nodes-2.example.org:8082".to_owned();
        let waited = new::Waited {
            dial: Some(new::Dial { url, class }),
            ..serde_json::from_value(message("waited")).unwrap()
        };
        let said = json!(waited);
        assert!(said["dial"].is_object());
        let read: old::Waited = serde_json::from_value(said).unwrap();
        assert_eq!(json!(read), message("waited"));
    }
}

#[test]
fn a_reason_that_a_newer_agent_knows_is_read_by_1_1() {
    let mut told = message("result_drained");
    told["ending"]["failure"]["cause"] = json!("made_up");
    let read: old::TaskResult = serde_json::from_value(told).unwrap();
    let old::Ending::Failed { failure } = read.ending else { panic!("{read:?}") };
    assert_eq!(failure.cause, Some(old::FailureCause::Other));
}

#[test]
fn the_versions_differ_by_one_minor_one() {
    assert_eq!(node_contract_1_1::CONTRACT, new::PREVIOUS_CONTRACT);
    assert_eq!(node_contract_1_1::CONTRACT_HEADER, new::CONTRACT_HEADER);
    assert_eq!(node_contract_1_1::TIME_HEADER, new::TIME_HEADER);
}
