//! The types and `openapi/events.json` say the same, in both directions.
#![allow(clippy::unwrap_used, reason = "a failure is a failed test")]

use std::collections::{BTreeMap, BTreeSet};

use events::{EventDoc, EventSet, asyncapi, published};
use kernel::event::Envelope;
use serde_json::{Value, json};
use testkit::{Fields, event_sample};
use uuid::Uuid;

fn document() -> Value {
    serde_json::from_str(include_str!("../../../../openapi/events.json")).unwrap()
}

fn key(doc: &EventDoc) -> String {
    format!("{}.v{}", doc.event_type, doc.version)
}

#[test]
fn every_type_is_in_the_document_with_its_schema() {
    let (committed, ours) = (document(), asyncapi::document(&published()));
    for doc in published() {
        let (there, here) =
            (&committed["components"]["messages"][key(&doc)], &ours["components"]["messages"][key(&doc)]);
        assert_eq!(there, here, "{}: `make generate` writes the document", doc.event_type);
        let schema =
            here["payload"]["properties"]["payload"]["$ref"].as_str().unwrap().trim_start_matches('#');
        assert_eq!(committed.pointer(schema), ours.pointer(schema), "{}", doc.event_type);
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
    let mut streams: BTreeMap<&str, &str> = BTreeMap::new();
    for doc in published() {
        assert!(names.insert(doc.event_type), "{} is published twice", doc.event_type);
        let area = doc.event_type.split('.').next().unwrap();
        let stream = streams.entry(area).or_insert(doc.stream.name());
        assert_eq!(*stream, doc.stream.name(), "{}", doc.event_type);
    }
}

/// What somebody reads with these types is what was written with them, nothing lost and nothing changed; and a message
/// that has only what the document requires, as one of an older release, is read as well.
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
