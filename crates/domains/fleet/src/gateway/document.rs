//! The OpenAPI document of the node contract: routes, messages, and the catalog of work.
//!
//! Made from the same routes and types that are served. Work travels as signed bytes, so its forms stand beside the
//! paths: `x-gpuaas-signed` (what the bytes mean) and `x-gpuaas-tasks` (input and output of every kind).

use endpoint::openapi::{error_envelope, inline_schema_for, parameters, settings};
use node_proto::{
    Keyset, Task, catalog,
    contract::{self, CONTRACT, CONTRACT_HEADER, Proof, ROUTES, Route, RouteId, TIME_HEADER},
};
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

/// What a route carries.
struct Types {
    query: Option<Schema>,
    body: Option<Schema>,
    /// JSON, or a stream of bytes.
    reply: Option<Schema>,
}

fn types(route: &Route, g: &mut SchemaGenerator) -> Types {
    let (mut query, mut body) = (None, None);
    let reply = match route.id {
        RouteId::Enroll => {
            body = Some(g.subschema_for::<contract::EnrollRequest>());
            Some(g.subschema_for::<contract::Enrolled>())
        }
        RouteId::Renew => {
            body = Some(g.subschema_for::<contract::RenewRequest>());
            Some(g.subschema_for::<contract::Renewed>())
        }
        RouteId::Trust => Some(g.subschema_for::<contract::Trust>()),
        RouteId::Wait => {
            query = Schema::try_from(inline_schema_for::<contract::WaitQuery>()).ok();
            Some(g.subschema_for::<contract::Waited>())
        }
        RouteId::Progress => {
            body = Some(g.subschema_for::<contract::Progress>());
            Some(g.subschema_for::<contract::ProgressAnswer>())
        }
        RouteId::Result => {
            body = Some(g.subschema_for::<contract::TaskResult>());
            Some(g.subschema_for::<contract::ResultAnswer>())
        }
        RouteId::Heartbeat => {
            body = Some(g.subschema_for::<contract::Heartbeat>());
            Some(g.subschema_for::<contract::HeartbeatAnswer>())
        }
        RouteId::Logs => {
            body = Some(g.subschema_for::<contract::LogBatch>());
            Some(g.subschema_for::<contract::LogsTaken>())
        }
        RouteId::Program => None,
    };
    Types { query, body, reply }
}

/// The whole document, deterministic: same contract, same bytes.
pub fn document() -> Value {
    let mut generator = settings().into_generator();
    let mut routes: Vec<&Route> = ROUTES.to_vec();
    routes.sort_by_key(|route| (route.path, route.method));
    let mut paths: Map<String, Value> = Map::new();
    for route in routes {
        let item = paths.entry(route.path).or_insert_with(|| json!({}));
        item[route.method.to_ascii_lowercase()] = operation(route, &mut generator);
    }
    let signed = json!({
        "Task": generator.subschema_for::<Task>(),
        "Keyset": generator.subschema_for::<Keyset>(),
    });
    let join_info = generator.subschema_for::<contract::JoinInfo>();
    let mut tasks: Map<String, Value> = Map::new();
    for (kind, input, output) in catalog::schemas(&mut generator) {
        let task = json!({
            "input": input,
            "output": output,
            "timeout_seconds": kind.timeout().as_secs(),
            "at_once": kind.at_once(),
            "privilege": kind.privilege(),
            "phases": kind.phases(),
        });
        tasks.insert(kind.name().to_owned(), task);
    }
    let mut schemas: Vec<(String, Value)> = generator.take_definitions(true).into_iter().collect();
    schemas.push(("ErrorEnvelope".to_owned(), error_envelope()));
    schemas.sort_by(|a, b| a.0.cmp(&b.0));
    json!({
        "openapi": "3.0.3",
        "info": {
            "title": "GPUaaS node contract",
            "version": CONTRACT,
            "description": format!(
                "Generated from the contract's types; do not edit. Served on the node listener only, over mutual TLS. Both \
                 sides send their version in `{CONTRACT_HEADER}`; one minor version of difference works in \
                 both directions.",
            ),
            "license": { "name": "Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "paths": paths,
        "components": {
            "schemas": schemas.into_iter().collect::<Map<_, _>>(),
            // Version 3.0 has no name for mutual TLS.
            "securitySchemes": { "certificate": {
                "type": "http", "scheme": "mutual-tls",
                "description": "The client certificate issued at enrolment, identified by its URI name `spiffe://<domain>/node/<id>`.",
            } },
        },
        "x-gpuaas-signed": signed,
        "x-gpuaas-join": join_info,
        "x-gpuaas-tasks": tasks,
    })
}

fn operation(route: &Route, generator: &mut SchemaGenerator) -> Value {
    let types = types(route, generator);
    let mut all: Vec<Value> = route
        .path
        .split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
        .map(path_parameter)
        .collect();
    if let Some(query) = types.query {
        all.extend(parameters("query", query, generator));
    }
    all.push(json!({
        "name": CONTRACT_HEADER, "in": "header", "required": false,
        "description": "The version of the contract that the node speaks; the previous one when absent.",
        "schema": { "type": "string", "pattern": "^[0-9]+\\.[0-9]+$" },
    }));
    let header = |text: &str, kind: &str| json!({ "description": text, "schema": { "type": kind } });
    let content = match types.reply {
        Some(schema) => json!({ "application/json": { "schema": schema } }),
        None => json!({ "application/octet-stream": { "schema": { "type": "string", "format": "binary" } } }),
    };
    let error = |text: &str| {
        let schema = json!({ "$ref": "#/components/schemas/ErrorEnvelope" });
        json!({ "description": text, "content": { "application/json": { "schema": schema } } })
    };
    let mut operation = json!({
        "operationId": route.id.name(),
        "tags": ["node"],
        "summary": route.summary,
        "parameters": all,
        "responses": {
            "200": {
                "description": "The answer.",
                "headers": {
                    CONTRACT_HEADER: header("The version of the contract that the control plane speaks.", "string"),
                    TIME_HEADER: header("The control plane's clock, in milliseconds since 1970.", "integer"),
                },
                "content": content,
            },
            "4XX": error("The request was refused; see `error.code`."),
            "5XX": error("The service is unavailable."),
        },
    });
    if let Some(schema) = types.body {
        operation["requestBody"] =
            json!({ "required": true, "content": { "application/json": { "schema": schema } } });
        operation["x-gpuaas-body-limit-bytes"] = json!(route.body_limit);
    }
    if route.proof == Proof::Certificate {
        operation["security"] = json!([{ "certificate": [] }]);
    }
    operation
}

fn path_parameter(name: &str) -> Value {
    let pattern = match name {
        "node_id" => "^node_[0-9a-f]{32}$",
        "task_id" => "^task_[0-9a-f]{32}$",
        _ => "^[0-9a-f]{64}$",
    };
    json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string", "pattern": pattern } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_and_kind_is_in_the_document_and_every_reference_leads_somewhere() {
        let document = document();
        for route in ROUTES {
            let operation = &document["paths"][route.path][route.method.to_ascii_lowercase()];
            assert_eq!(operation["operationId"], route.id.name());
            assert_eq!(operation.get("requestBody").is_some(), route.body_limit > 0, "{:?}", route.id);
        }
        for kind in node_proto::TaskType::ALL {
            assert!(document["x-gpuaas-tasks"][kind.name()]["input"].is_object(), "{}", kind.name());
        }
        let text = document.to_string();
        for reference in text.split("\"#/components/schemas/").skip(1) {
            let name = reference.split('"').next().unwrap_or_default();
            assert!(document["components"]["schemas"][name].is_object(), "{name}");
        }
    }
}
