//! The types and `openapi/events.json` say the same, in both directions.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure is a failed test")]

use std::collections::BTreeSet;

use events::{EventDoc, EventSet, asyncapi, published};
use kernel::event::Envelope;
use serde_json::{Value, json};
use testkit::{Fields, event_sample};
use uuid::Uuid;

fn document() -> Value {
    serde_json::from_str(include_str!("../../../../openapi/events.json")).unwrap()
}

/// The document of the release before, whose messages are in the queues when this one starts.
fn released() -> Value {
    serde_json::from_str(include_str!("../../../../openapi/released/events.json")).unwrap()
}

fn key(doc: &EventDoc) -> String {
    format!("{}.v{}", doc.event_type, doc.version)
}

#[test]
fn every_type_is_in_the_document_with_its_schema() {
    let (committed, ours) = (document(), asyncapi::document(&published()));
    for part in ["messages", "schemas"] {
        for (name, here) in ours["components"][part].as_object().unwrap() {
            let there = &committed["components"][part][name];
            assert_eq!(there, here, "{part} {name}: `make generate` writes the document");
        }
    }
}

#[test]
fn every_message_of_the_document_is_a_type() {
    let types: BTreeSet<String> = published().iter().map(key).collect();
    let committed = document();
    let messages = committed["components"]["messages"].as_object().unwrap();
    let unknown: Vec<_> = messages.keys().filter(|name| !types.contains(*name)).collect();
    assert_eq!(unknown, Vec::<&String>::new(), "nobody publishes these");
    assert_eq!(messages.len(), types.len());
}

#[test]
fn names_are_unique_and_belong_to_one_stream() {
    let mut names = BTreeSet::new();
    for doc in published() {
        assert!(names.insert(doc.event_type), "{} is published twice", doc.event_type);
        let area = doc.event_type.split('.').next().unwrap();
        assert_eq!(area.to_uppercase(), doc.stream.name(), "{}", doc.event_type);
    }
}

/// A field that the release before did not write must be an `Option`, and a name on the wire never changes: otherwise its
/// messages would become dead letters when this release starts.
#[test]
fn messages_of_the_release_before_are_read() {
    let (released, current) = (released(), document());
    for message in released["components"]["messages"].as_object().unwrap().values() {
        let name = message["name"].as_str().unwrap();
        let doc = published().into_iter().find(|doc| doc.event_type == name);
        let doc = doc
            .unwrap_or_else(|| panic!("{name} is published no longer, and messages of it are in the queues"));
        for fields in [Fields::All, Fields::Required] {
            let mut sample = event_sample(&released, name, fields);
            // The released document calls some enumerations texts: their values are those of the present one.
            let values = event_sample(&current, name, Fields::All);
            for (field, value) in sample.as_object_mut().unwrap() {
                *value = values.get(field).unwrap_or(value).clone();
            }
            doc.round_trip(&sample).unwrap_or_else(|error| panic!("{name}: {error}: {sample}"));
        }
    }
}

/// What somebody reads with these types is what was written with them, nothing lost and nothing changed; and a message
/// that has only what the document requires is read as well.
#[test]
fn a_payload_made_from_the_document_survives_the_round_trip() {
    let document = document();
    for doc in published() {
        let full = event_sample(&document, doc.event_type, Fields::All);
        assert_eq!(doc.round_trip(&full).unwrap(), full, "{}", doc.event_type);
        let required = event_sample(&document, doc.event_type, Fields::Required);
        let mut read = doc.round_trip(&required).unwrap();
        read.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        assert_eq!(read, required, "{}", doc.event_type);
    }
}

events::event_set! { Reachability { NodeOffline, NodeRecovered } }

use events::fleet::{NodeOffline, NodeRecovered};

fn envelope(event_type: &str, payload: Value) -> Envelope {
    Envelope {
        event_id: Uuid::from_u128(1),
        event_type: event_type.to_owned(),
        version: 1,
        occurred_at: chrono::DateTime::UNIX_EPOCH,
        correlation_id: Uuid::from_u128(2),
        traceparent: None,
        org_id: None,
        project_id: None,
        payload,
    }
}

#[test]
fn a_set_reads_its_own_types_and_no_others() {
    let document = document();
    for event_type in Reachability::TYPES {
        let payload = event_sample(&document, event_type, Fields::All);
        let read = Reachability::decode(&envelope(event_type, payload)).unwrap();
        assert!(read.is_some(), "{event_type}");
        assert!(Reachability::decode(&envelope(event_type, json!({ "node_id": 1 }))).is_err());
    }
    let other = envelope("nodes.draining", json!({}));
    assert_eq!(Reachability::decode(&other).unwrap(), None);
    assert_eq!(NodeOffline::decode(&other).unwrap(), None, "a type is a set by itself");
}
