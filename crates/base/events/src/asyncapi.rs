//! The AsyncAPI 3.0 document of all events, from the same types that are emitted.

use std::collections::BTreeMap;

use kernel::{Event, Stream, event::Envelope};
use schemars::{JsonSchema as _, Schema, SchemaGenerator, generate::SchemaSettings};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// What the document needs to know of an event type.
#[derive(Clone, Copy, Debug)]
pub struct EventDoc {
    pub event_type: &'static str,
    pub version: u16,
    pub stream: Stream,
    pub summary: &'static str,
    payload: fn(&mut SchemaGenerator) -> Schema,
    round_trip: fn(&Value) -> serde_json::Result<Value>,
}

impl EventDoc {
    pub fn new<E: Event + DeserializeOwned>() -> Self {
        Self {
            event_type: E::TYPE,
            version: E::VERSION,
            stream: E::STREAM,
            summary: E::SUMMARY,
            payload: |generator| generator.subschema_for::<E>(),
            round_trip: |payload| serde_json::to_value(E::deserialize(payload)?),
        }
    }

    /// The payload as its consumers read it, written by its publisher.
    pub fn round_trip(&self, payload: &Value) -> serde_json::Result<Value> {
        (self.round_trip)(payload)
    }

    /// The name of the message in the document.
    fn key(&self) -> String {
        format!("{}.v{}", self.event_type, self.version)
    }
}

/// The same events give the same document, whatever their order.
pub fn document(events: &[EventDoc]) -> Value {
    let mut settings = SchemaSettings::draft07();
    settings.definitions_path = "/components/schemas".into();
    settings.meta_schema = None;
    let mut generator = settings.into_generator();

    let events: BTreeMap<String, &EventDoc> = events.iter().map(|e| (e.key(), e)).collect();
    let mut messages = Map::new();
    let mut by_stream: BTreeMap<&str, (Stream, Vec<&String>)> = BTreeMap::new();
    for (key, event) in &events {
        messages.insert(key.clone(), message(event, &mut generator));
        by_stream.entry(event.stream.name()).or_insert((event.stream, Vec::new())).1.push(key);
    }
    let mut channels = Map::new();
    let mut operations = Map::new();
    for (name, (stream, keys)) in by_stream {
        channels.insert(name.to_owned(), channel(stream, &keys));
        operations.insert(
            format!("receive{name}"),
            json!({
                "action": "receive",
                "channel": { "$ref": format!("#/channels/{name}") },
                "summary": format!("Durable consumers of {name}: explicit ack, at least once."),
            }),
        );
    }
    // Sorted, because the generator's own order follows the order of the events.
    let schemas: BTreeMap<String, Value> = generator.take_definitions(true).into_iter().collect();
    json!({
        "asyncapi": "3.0.0",
        "info": {
            "title": "GPUaaS events",
            "version": "1",
            "description": "Events of the domains. Every event is written in the transaction of its change, \
                published at least once, and has one effect per consumer. Order is not guaranteed.",
        },
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": operations,
        "components": { "messages": messages, "schemas": schemas },
    })
}

fn channel(stream: Stream, keys: &[&String]) -> Value {
    let messages: Map<String, Value> = keys
        .iter()
        .map(|key| ((*key).clone(), json!({ "$ref": format!("#/components/messages/{key}") })))
        .collect();
    json!({
        "address": stream.name(),
        "description": format!("Messages are kept for {} days.", stream.retention_days()),
        "messages": messages,
    })
}

/// The envelope with its type, version and payload made definite.
fn message(event: &EventDoc, generator: &mut SchemaGenerator) -> Value {
    let payload = (event.payload)(generator);
    let mut envelope = Envelope::json_schema(generator).to_value();
    if let Some(properties) = envelope.get_mut("properties").and_then(Value::as_object_mut) {
        properties.insert("event_type".into(), json!({ "type": "string", "const": event.event_type }));
        properties.insert("version".into(), json!({ "type": "integer", "const": event.version }));
        properties.insert("payload".into(), payload.to_value());
    }
    json!({
        "name": event.event_type,
        "title": event.event_type,
        "summary": event.summary,
        "contentType": "application/json",
        "correlationId": { "location": "$message.payload#/correlation_id" },
        "payload": envelope,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
    struct Part {
        size: u32,
    }

    macro_rules! event {
        ($name:ident, $type:literal, $version:literal, $stream:ident) => {
            #[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
            struct $name {
                part: Part,
            }
            impl Event for $name {
                const TYPE: &'static str = $type;
                const VERSION: u16 = $version;
                const STREAM: Stream = Stream::$stream;
                const SUMMARY: &'static str = "Something happened.";
            }
        };
    }
    event!(Made, "thing.made", 1, Storage);
    event!(MadeAnew, "thing.made", 2, Storage);
    event!(Paid, "payments.thing.paid", 1, Payments);

    fn docs() -> [EventDoc; 3] {
        [EventDoc::new::<Made>(), EventDoc::new::<MadeAnew>(), EventDoc::new::<Paid>()]
    }

    #[test]
    fn the_document_does_not_depend_on_the_order_of_the_events() {
        let mut other = docs();
        other.reverse();
        let text = |docs: &[EventDoc]| serde_json::to_string_pretty(&document(docs)).unwrap();
        assert_eq!(text(&docs()), text(&other));
    }

    #[test]
    fn every_reference_leads_somewhere_and_every_event_is_on_its_channel() {
        fn references<'a>(value: &'a Value, out: &mut Vec<&'a str>) {
            match value {
                Value::Object(map) => {
                    out.extend(map.get("$ref").and_then(Value::as_str));
                    map.values().for_each(|v| references(v, out));
                }
                Value::Array(items) => items.iter().for_each(|v| references(v, out)),
                _ => {}
            }
        }
        let document = document(&docs());
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.contains(&"#/components/schemas/Part"));
        for reference in found {
            assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
        }
        assert!(document["channels"]["STORAGE"]["messages"].get("thing.made.v2").is_some());
        let paid = &document["components"]["messages"]["payments.thing.paid.v1"]["payload"];
        assert_eq!(paid["properties"]["event_type"]["const"], "payments.thing.paid");
        assert!(document["channels"]["PAYMENTS"]["description"].as_str().unwrap().contains("30 days"));
    }
}
