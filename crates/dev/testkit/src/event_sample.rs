//! Payloads made from the document of events alone, as somebody would who has nothing else.

use serde_json::{Map, Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fields {
    All,
    /// As a message of a release that did not know the others yet.
    Required,
}

/// A payload of the event as its schema in `document` says.
pub fn event_sample(document: &Value, event_type: &str, fields: Fields) -> Value {
    let message = &document["components"]["messages"][format!("{event_type}.v1")];
    let payload = &message["payload"]["properties"]["payload"];
    assert!(payload.is_object(), "{event_type} is not in the document");
    sample(document, payload, fields)
}

fn sample(document: &Value, schema: &Value, fields: Fields) -> Value {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = document.pointer(reference.trim_start_matches('#'));
        return sample(document, target.expect("a reference that leads somewhere"), fields);
    }
    // A named schema that may be null, or that has a description of its own.
    if let Some(inner) = ["anyOf", "allOf"].iter().find_map(|keyword| schema[keyword].get(0)) {
        return sample(document, inner, fields);
    }
    if let Some(names) = schema["enum"].as_array() {
        return names.last().unwrap().clone();
    }
    let kind = schema["type"].as_str().or_else(|| schema["type"][0].as_str());
    match kind {
        Some("object") => {
            let required = schema["required"].as_array().cloned().unwrap_or_default();
            let properties = schema["properties"].as_object().expect("an object with properties");
            let wanted = |name: &String| fields == Fields::All || required.contains(&json!(name));
            let chosen = properties.iter().filter(|(name, _)| wanted(name));
            Value::Object(
                chosen
                    .map(|(name, schema)| (name.clone(), sample(document, schema, fields)))
                    .collect::<Map<_, _>>(),
            )
        }
        Some("array") => json!([sample(document, &schema["items"], fields)]),
        Some("integer") => json!(7),
        Some("boolean") => json!(true),
        Some("string") => json!(text(schema)),
        None if *schema == json!(true) => json!({ "anything": [1, "two"] }),
        _ => panic!("a schema that samples do not know: {schema}"),
    }
}

fn text(schema: &Value) -> String {
    match (schema["format"].as_str(), schema["pattern"].as_str()) {
        (Some("date-time"), _) => "2026-03-01T12:00:00Z".to_owned(),
        (None, None) => "some text".to_owned(),
        (None, Some(pattern)) => {
            let prefix = pattern.strip_prefix('^').and_then(|rest| rest.strip_suffix("[0-9a-f]{32}$"));
            format!("{}{:032x}", prefix.expect("the pattern of an id"), 7)
        }
        _ => panic!("a text that samples do not know: {schema}"),
    }
}
