//! The OpenAPI document, from the same declarations that are served.
//!
//! Version 3.0.3, because the client generators read that best; errors as `4XX`/`5XX`. Identifiers, checked texts and
//! what every operation shares (headers, refusals) stand once under `components`, so that a change of an operation is
//! a few lines of the document.

use schemars::{
    JsonSchema, SchemaGenerator,
    generate::SchemaSettings,
    transform::{ReplaceConstValue, Transform as _},
};
use serde_json::{Map, Value, json};

use crate::declare::{Declaration, Endpoint, Idempotency, ScopeKind};

/// How schemas are written in every document of ours.
pub fn settings() -> SchemaSettings {
    SchemaSettings::openapi3()
}

/// The schema of a parameter struct, by itself.
pub fn inline_schema_for<T: JsonSchema>() -> Value {
    let mut settings = settings();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

/// The whole document, deterministic: same declarations, same bytes.
pub fn document(title: &str, version: &str, endpoints: &[Endpoint]) -> Value {
    let mut generator = settings().into_generator();
    let mut paths: Map<String, Value> = Map::new();
    let mut sorted: Vec<&Declaration> = endpoints.iter().map(Endpoint::declaration).collect();
    sorted.sort_by_key(|d| (d.path, d.method.as_str().to_owned()));
    for declaration in sorted {
        let item = paths.entry(declaration.path).or_insert_with(|| json!({}));
        item[declaration.method.as_str().to_ascii_lowercase()] = operation(declaration, &mut generator);
    }
    let mut schemas: Vec<(String, Value)> = generator.take_definitions(true).into_iter().collect();
    schemas.push(("ErrorEnvelope".to_owned(), error_envelope()));
    schemas.sort_by(|a, b| a.0.cmp(&b.0));
    json!({
        "openapi": "3.0.3",
        "info": {
            "title": title,
            "version": version,
            "description": "Generated from the endpoint declarations; do not edit.",
            "license": { "name": "Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "paths": paths,
        "components": {
            "schemas": schemas.into_iter().collect::<Map<_, _>>(),
            "parameters": shared_parameters(),
            "responses": shared_responses(),
            "securitySchemes": { "bearer": { "type": "http", "scheme": "bearer", "bearerFormat": "JWT" } },
        },
    })
}

fn operation(declaration: &Declaration, generator: &mut SchemaGenerator) -> Value {
    let types = &declaration.types;
    let mut parameters = parameters("path", (types.path)(generator), generator);
    parameters.extend(self::parameters("query", (types.query)(generator), generator));
    match declaration.idempotency {
        Idempotency::None => {}
        Idempotency::Accepted => parameters.push(reference_to("parameters", "IdempotencyKey")),
        Idempotency::Required => parameters.push(reference_to("parameters", "IdempotencyKeyRequired")),
    }
    if matches!(declaration.method.as_str(), "PUT" | "PATCH" | "DELETE") {
        parameters.push(reference_to("parameters", "IfMatch"));
    }
    let mut success = json!({ "description": success_description(types.reply_status) });
    if let Some(schema) = types.reply {
        success["content"] = json!({ types.reply_content: { "schema": schema(generator) } });
    } else if types.reply_content != "application/json" {
        success["content"] =
            json!({ types.reply_content: { "schema": { "type": "string", "format": "binary" } } });
    }
    let mut operation = json!({
        "operationId": declaration.id,
        "tags": [declaration.tag()],
        "summary": declaration.summary,
        "parameters": parameters,
        "responses": {
            types.reply_status.to_string(): success,
            "4XX": reference_to("responses", "ClientError"),
            "5XX": reference_to("responses", "ServerError"),
        },
        "x-gpuaas-scope": declaration.scope.name(),
        "x-gpuaas-lane": declaration.lane.name(),
    });
    if !declaration.description.is_empty() {
        operation["description"] = json!(declaration.description);
    }
    if let Some(schema) = types.body {
        operation["requestBody"] =
            json!({ "required": true, "content": { "application/json": { "schema": schema(generator) } } });
    }
    if declaration.scope != ScopeKind::Public {
        operation["security"] = json!([{ "bearer": [] }]);
    }
    if let Some(permission) = declaration.permission {
        operation["x-gpuaas-permission"] = json!(permission.name());
    }
    if let Some(action) = declaration.audit {
        operation["x-gpuaas-audit"] = json!(action);
    }
    if !declaration.errors.is_empty() {
        operation["x-gpuaas-errors"] = declaration.errors.iter().map(|c| c.as_str()).collect();
    }
    operation
}

fn reference_to(group: &str, name: &str) -> Value {
    json!({ "$ref": format!("#/components/{group}/{name}") })
}

/// The headers that many operations take.
fn shared_parameters() -> Value {
    let idempotency_key = |required: bool| {
        json!({
            "name": "X-Idempotency-Key",
            "in": "header",
            "required": required,
            "description": "Makes a retry idempotent: the same request with the same key has one effect and gets the same response; another request with the key is refused.",
            "schema": { "type": "string", "minLength": 1, "maxLength": 255 },
        })
    };
    json!({
        "IdempotencyKey": idempotency_key(false),
        "IdempotencyKeyRequired": idempotency_key(true),
        "IfMatch": {
            "name": "If-Match",
            "in": "header",
            "required": false,
            "description": "The version that you read; if it is no longer current, the response is 409 `conflict`.",
            "schema": { "type": "string", "pattern": r#"^("?[0-9]{1,18}"?|\*)$"# },
        },
    })
}

/// How every operation refuses and fails.
fn shared_responses() -> Value {
    let error = |text: &str| {
        let schema = reference_to("schemas", "ErrorEnvelope");
        json!({ "description": text, "content": { "application/json": { "schema": schema } } })
    };
    json!({
        "ClientError": error("The request was refused; see `error.code`."),
        "ServerError": error("The service is unavailable."),
    })
}

fn success_description(status: u16) -> &'static str {
    match status {
        201 => "Created.",
        202 => "Accepted; the operation continues asynchronously.",
        204 => "Done; no content.",
        _ => "The answer.",
    }
}

/// One parameter per property of the struct.
pub fn parameters(place: &str, schema: schemars::Schema, generator: &SchemaGenerator) -> Vec<Value> {
    let mut schema = schema.to_value();
    if let Some(name) = schema.get("$ref").and_then(Value::as_str).and_then(|r| r.rsplit('/').next()) {
        schema = generator.definitions().get(name).cloned().unwrap_or_default();
    }
    // The generator rewrites only named schemas; this version of OpenAPI knows no constants.
    let mut schema = schemars::Schema::try_from(schema).unwrap_or_default();
    ReplaceConstValue::default().transform(&mut schema);
    let schema = schema.to_value();
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return Vec::new() };
    let parameter = |(name, schema): (&String, &Value)| {
        let mut schema = schema.clone();
        let description = schema.as_object_mut().and_then(|s| s.remove("description"));
        // A parameter is absent rather than null.
        if let Some(object) = schema.as_object_mut() {
            object.remove("nullable");
            object.remove("default");
        }
        let mut parameter = json!({
            "name": name,
            "in": place,
            "required": place == "path" || required.contains(&name.as_str()),
            "schema": schema,
        });
        if let Some(description) = description {
            parameter["description"] = description;
        }
        parameter
    };
    properties.iter().map(parameter).collect()
}

/// The schema of every refusal.
pub fn error_envelope() -> Value {
    let codes: Vec<&str> = kernel::Code::ALL.iter().map(|c| c.as_str()).collect();
    json!({
        "type": "object",
        "required": ["error"],
        "properties": { "error": {
            "type": "object",
            "required": ["code", "message", "correlation_id", "details", "suggestion"],
            "properties": {
                "code": { "type": "string", "description": format!("One of: {}. The list grows.", codes.join(", ")) },
                "message": { "type": "string" },
                "correlation_id": { "type": "string", "format": "uuid" },
                "details": { "type": "object", "additionalProperties": true },
                "suggestion": { "type": "string" },
            },
        }},
    })
}

#[cfg(test)]
mod tests {
    use kernel::ids::OrgId;

    use super::*;

    #[derive(JsonSchema)]
    #[allow(dead_code)]
    struct Thing {
        /// Who has it.
        owner: OrgId,
        former_owner: Option<OrgId>,
    }

    #[test]
    fn an_identifier_is_a_named_schema_that_may_be_null() {
        let mut generator = settings().into_generator();
        generator.subschema_for::<Thing>();
        let schemas = generator.take_definitions(true);
        let reference = json!({ "$ref": "#/components/schemas/OrgId" });
        let properties = &schemas["Thing"]["properties"];
        assert_eq!(properties["owner"], json!({ "description": "Who has it.", "allOf": [reference] }));
        let no_value = json!({ "nullable": true, "enum": [null] });
        assert_eq!(properties["former_owner"], json!({ "anyOf": [reference, no_value] }));
        assert_eq!(schemas["OrgId"]["pattern"], "^org_[0-9a-f]{32}$");
    }
}
