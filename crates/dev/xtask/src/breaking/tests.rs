//! One rich document, one edit at a time: what must break, and what must not.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Kind, compare};

fn document() -> Value {
    json!({
        "openapi": "3.0.3",
        "security": [{"token": []}],
        "paths": {
            "/things": {
                "parameters": [{"name": "trace", "in": "header", "schema": {"type": "string"}}],
                "get": {
                    "operationId": "thing_list",
                    "parameters": [
                        {"$ref": "#/components/parameters/PageSize"},
                        {"name": "order", "in": "query", "schema": {"type": "string", "enum": ["asc", "desc"]}}
                    ],
                    "responses": {
                        "200": {
                            "description": "ok",
                            "headers": {"X-Count": {"required": true, "schema": {"type": "integer"}}},
                            "content": {
                                "application/json": {"schema": {"type": "array", "items": {"$ref": "#/components/schemas/Thing"}}},
                                "text/csv": {"schema": {"type": "string"}}
                            }
                        },
                        "404": {"description": "no"}
                    }
                },
                "post": {
                    "operationId": "thing_create",
                    "requestBody": {"$ref": "#/components/requestBodies/New"},
                    "responses": {"201": {"description": "made", "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Thing"}}}}}
                }
            },
            "/open": {"get": {"operationId": "open", "security": [], "responses": {"204": {"description": "ok"}}}}
        },
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "parameters": {"PageSize": {"name": "page_size", "in": "query", "schema": {"type": "integer", "minimum": 1, "maximum": 200}}},
            "requestBodies": {"New": {"content": {
                "application/json": {"schema": {"$ref": "#/components/schemas/NewThing"}},
                "application/yaml": {"schema": {"$ref": "#/components/schemas/NewThing"}}
            }}},
            "schemas": {
                "Thing": {
                    "type": "object",
                    "required": ["id", "state", "count"],
                    "properties": {
                        "id": {"type": "string", "format": "uuid"},
                        "count": {"type": "integer", "format": "int32"},
                        "ratio": {"type": "number"},
                        "state": {"$ref": "#/components/schemas/State"},
                        "phase": {"oneOf": [{"type": "string", "enum": ["a"], "description": "A"}, {"type": "string", "enum": ["b"]}]},
                        "parent": {"anyOf": [{"$ref": "#/components/schemas/Thing"}, {"enum": [null], "nullable": true}]},
                        "base": {"allOf": [{"$ref": "#/components/schemas/Base"}]},
                        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                        "source": {"oneOf": [
                            {"type": "object", "required": ["kind"], "properties": {"kind": {"type": "string", "enum": ["disk"]}, "size": {"type": "integer"}}},
                            {"type": "object", "required": ["kind"], "properties": {"kind": {"type": "string", "enum": ["net"]}}}
                        ]}
                    }
                },
                "Base": {"type": "object", "required": ["made_by"], "properties": {"made_by": {"type": "string"}}},
                "State": {"type": "string", "enum": ["on", "off"]},
                "NewThing": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {
                        "name": {"type": "string", "minLength": 1, "maxLength": 63, "pattern": "^[a-z]+$"},
                        "note": {"type": "string", "nullable": true},
                        "size": {"type": "integer", "minimum": 1, "maximum": 100},
                        "amount": {"type": "number"},
                        "mode": {"type": "string", "enum": ["fast", "slow"]},
                        "tags": {"type": "array", "maxItems": 10, "items": {"type": "string"}},
                        "free": {"type": "object"},
                        "tree": {"$ref": "#/components/schemas/Tree"},
                        "secret": {"type": "string", "writeOnly": true},
                        "target": {"anyOf": [{"type": "string"}, {"type": "integer"}]}
                    }
                },
                "Tree": {"type": "object", "properties": {
                    "value": {"type": "string"},
                    "children": {"type": "array", "items": {"$ref": "#/components/schemas/Tree"}}
                }}
            }
        }
    })
}

type Edit = fn(&mut Value);

fn at<'a>(document: &'a mut Value, pointer: &str) -> &'a mut Value {
    document.pointer_mut(pointer).unwrap_or_else(|| panic!("no {pointer}"))
}

fn remove(document: &mut Value, pointer: &str, key: &str) {
    let removed = at(document, pointer).as_object_mut().unwrap().remove(key);
    assert!(removed.is_some(), "no {pointer}/{key}");
}

fn push(document: &mut Value, pointer: &str, value: Value) {
    at(document, pointer).as_array_mut().unwrap().push(value);
}

const LIST: &str = "/paths/~1things/get";
const CREATE: &str = "/paths/~1things/post";
const THING: &str = "/components/schemas/Thing/properties";
const NEW: &str = "/components/schemas/NewThing/properties";

fn field<'a>(document: &'a mut Value, schema: &str, name: &str) -> &'a mut Value {
    &mut at(document, schema)[name]
}

#[rustfmt::skip]
const BREAKING: &[(&str, Kind, Edit)] = &[
    ("path removed", Kind::PathRemoved, |d| remove(d, "/paths", "/things")),
    ("method removed", Kind::MethodRemoved, |d| remove(d, "/paths/~1things", "post")),
    ("operation renamed", Kind::OperationIdChanged, |d| at(d, LIST)["operationId"] = json!("other")),
    ("security on an open operation", Kind::SecurityAdded, |d| at(d, "/paths/~1open/get")["security"] = json!([{"token": []}])),
    ("open operation falls under the default", Kind::SecurityAdded, |d| remove(d, "/paths/~1open/get", "security")),
    ("new scope demanded", Kind::SecurityAdded, |d| d["security"] = json!([{"token": ["admin"]}])),
    ("second scheme demanded", Kind::SecurityAdded, |d| d["security"] = json!([{"token": [], "other": []}])),
    ("another scheme demanded", Kind::SecurityAdded, |d| d["security"] = json!([{"other": []}])),
    ("scheme works differently", Kind::SecuritySchemeChanged, |d| at(d, "/components/securitySchemes/token")["scheme"] = json!("basic")),
    ("parameter removed", Kind::ParameterRemoved, |d| drop(at(d, LIST)["parameters"].as_array_mut().unwrap().pop())),
    ("path-level parameter removed", Kind::ParameterRemoved, |d| remove(d, "/paths/~1things", "parameters")),
    ("new required parameter", Kind::ParameterRequired, |d| push(d, "/paths/~1things/get/parameters", json!({"name": "q", "in": "query", "required": true, "schema": {}}))),
    ("parameter became required", Kind::ParameterRequired, |d| at(d, "/components/parameters/PageSize")["required"] = json!(true)),
    ("parameter bound narrowed behind a reference", Kind::InputNarrowed, |d| at(d, "/components/parameters/PageSize/schema")["maximum"] = json!(100)),
    ("parameter written differently", Kind::ParameterStyleChanged, |d| at(d, "/components/parameters/PageSize")["explode"] = json!(false)),
    ("parameter lost a value", Kind::InputEnumShrank, |d| at(d, "/paths/~1things/get/parameters/1/schema")["enum"] = json!(["asc"])),
    ("body no longer accepted", Kind::BodyRemoved, |d| remove(d, CREATE, "requestBody")),
    ("body became required", Kind::BodyRequired, |d| at(d, "/components/requestBodies/New")["required"] = json!(true)),
    ("new required body", Kind::BodyRequired, |d| at(d, LIST)["requestBody"] = json!({"required": true, "content": {}})),
    ("request media type removed", Kind::MediaTypeRemoved, |d| remove(d, "/components/requestBodies/New/content", "application/yaml")),
    ("response media type removed", Kind::MediaTypeRemoved, |d| remove(d, "/paths/~1things/get/responses/200/content", "text/csv")),
    ("status removed", Kind::StatusRemoved, |d| remove(d, "/paths/~1things/get/responses", "404")),
    ("header removed", Kind::OutputHeaderLost, |d| remove(d, "/paths/~1things/get/responses/200/headers", "X-Count")),
    ("header became optional", Kind::OutputHeaderLost, |d| at(d, "/paths/~1things/get/responses/200/headers/X-Count")["required"] = json!(false)),
    ("output field removed", Kind::OutputFieldLost, |d| remove(d, THING, "ratio")),
    ("output field removed behind allOf", Kind::OutputFieldLost, |d| remove(d, "/components/schemas/Base/properties", "made_by")),
    ("output became a closed object without entries", Kind::OutputFieldLost, |d| field(d, THING, "labels")["additionalProperties"] = json!(false)),
    ("output field became optional", Kind::OutputFieldOptional, |d| at(d, "/components/schemas/Thing")["required"] = json!(["id", "state"])),
    ("output field became optional behind allOf", Kind::OutputFieldOptional, |d| remove(d, "/components/schemas/Base", "required")),
    ("output changed type", Kind::TypeChanged, |d| field(d, THING, "id")["type"] = json!("integer")),
    ("output changed format", Kind::TypeChanged, |d| field(d, THING, "id")["format"] = json!("date")),
    ("output lost its format", Kind::TypeChanged, |d| remove(d, "/components/schemas/Thing/properties/id", "format")),
    ("output integer became a number", Kind::TypeChanged, |d| *field(d, THING, "count") = json!({"type": "number"})),
    ("output integer grew", Kind::TypeChanged, |d| field(d, THING, "count")["format"] = json!("int64")),
    ("output entries changed type", Kind::TypeChanged, |d| field(d, THING, "labels")["additionalProperties"] = json!({"type": "integer"})),
    ("output entries of any type", Kind::TypeChanged, |d| remove(d, "/components/schemas/Thing/properties/labels", "additionalProperties")),
    ("output list became something else", Kind::TypeChanged, |d| at(d, "/paths/~1things/get/responses/200/content/application~1json")["schema"] = json!({"$ref": "#/components/schemas/Thing"})),
    ("output schema is gone", Kind::TypeChanged, |d| remove(d, "/paths/~1things/get/responses/200/content/text~1csv", "schema")),
    ("output may be null", Kind::OutputNullable, |d| field(d, THING, "id")["nullable"] = json!(true)),
    ("output may be null by anyOf", Kind::OutputNullable, |d| *field(d, THING, "base") = json!({"anyOf": [{"$ref": "#/components/schemas/Base"}, {"type": "null"}]})),
    ("output may be null as part of a union", Kind::OutputNullable, |d| *field(d, THING, "ratio") = json!({"anyOf": [{"type": "number"}, {"type": "integer"}, {"type": "null"}]})),
    ("output enum grew", Kind::OutputEnumGrew, |d| push(d, "/components/schemas/State/enum", json!("broken"))),
    ("output enum written as oneOf grew", Kind::OutputEnumGrew, |d| push(d, "/components/schemas/Thing/properties/phase/oneOf", json!({"type": "string", "enum": ["c"]}))),
    ("output enum opened", Kind::OutputEnumGrew, |d| remove(d, "/components/schemas/State", "enum")),
    ("output union grew", Kind::OutputVariantAdded, |d| push(d, "/components/schemas/Thing/properties/source/oneOf", json!({"type": "object", "required": ["kind"], "properties": {"kind": {"type": "string", "enum": ["tape"]}}}))),
    ("output became a union", Kind::OutputVariantAdded, |d| *field(d, THING, "ratio") = json!({"anyOf": [{"type": "number"}, {"type": "string"}]})),
    ("field lost in a variant", Kind::OutputFieldLost, |d| remove(d, "/components/schemas/Thing/properties/source/oneOf/0/properties", "size")),
    ("input field removed", Kind::InputFieldLost, |d| remove(d, NEW, "note")),
    ("write-only input field removed", Kind::InputFieldLost, |d| remove(d, NEW, "secret")),
    ("input field became read-only", Kind::InputFieldLost, |d| field(d, NEW, "note")["readOnly"] = json!(true)),
    ("input field became required", Kind::InputFieldRequired, |d| push(d, "/components/schemas/NewThing/required", json!("size"))),
    ("new required input field", Kind::InputFieldRequired, |d| {
        *field(d, NEW, "owner") = json!({"type": "string"});
        push(d, "/components/schemas/NewThing/required", json!("owner"));
    }),
    ("required by allOf", Kind::InputFieldRequired, |d| at(d, "/components/schemas/NewThing")["allOf"] = json!([{"required": ["size"]}])),
    ("input changed type", Kind::TypeChanged, |d| field(d, NEW, "size")["type"] = json!("string")),
    ("input number became an integer", Kind::TypeChanged, |d| field(d, NEW, "amount")["type"] = json!("integer")),
    ("input gained a format", Kind::TypeChanged, |d| field(d, NEW, "note")["format"] = json!("date")),
    ("input may not be null", Kind::InputNotNullable, |d| remove(d, "/components/schemas/NewThing/properties/note", "nullable")),
    ("input enum shrank", Kind::InputEnumShrank, |d| field(d, NEW, "mode")["enum"] = json!(["fast"])),
    ("input became an enum", Kind::InputEnumShrank, |d| field(d, NEW, "note")["enum"] = json!(["a", null])),
    ("input variant lost", Kind::InputVariantLost, |d| field(d, NEW, "target")["anyOf"] = json!([{"type": "string"}, {"type": "boolean"}])),
    ("input union became one type", Kind::InputVariantLost, |d| *field(d, NEW, "target") = json!({"type": "string"})),
    ("higher minimum", Kind::InputNarrowed, |d| field(d, NEW, "size")["minimum"] = json!(2)),
    ("lower maximum", Kind::InputNarrowed, |d| field(d, NEW, "size")["maximum"] = json!(99)),
    ("exclusive maximum", Kind::InputNarrowed, |d| field(d, NEW, "size")["exclusiveMaximum"] = json!(true)),
    ("new minimum", Kind::InputNarrowed, |d| field(d, NEW, "amount")["minimum"] = json!(0)),
    ("shorter text", Kind::InputNarrowed, |d| field(d, NEW, "name")["maxLength"] = json!(62)),
    ("longer text demanded", Kind::InputNarrowed, |d| field(d, NEW, "name")["minLength"] = json!(2)),
    ("new length limit", Kind::InputNarrowed, |d| field(d, NEW, "note")["maxLength"] = json!(1000)),
    ("other pattern", Kind::InputNarrowed, |d| field(d, NEW, "name")["pattern"] = json!("^[a-z0-9]+$")),
    ("new pattern", Kind::InputNarrowed, |d| field(d, NEW, "note")["pattern"] = json!(".")),
    ("fewer items", Kind::InputNarrowed, |d| field(d, NEW, "tags")["maxItems"] = json!(5)),
    ("unique items", Kind::InputNarrowed, |d| field(d, NEW, "tags")["uniqueItems"] = json!(true)),
    ("multiples only", Kind::InputNarrowed, |d| field(d, NEW, "size")["multipleOf"] = json!(5)),
    ("unknown fields refused", Kind::InputNarrowed, |d| field(d, NEW, "free")["additionalProperties"] = json!(false)),
    ("change deep in a recursive schema", Kind::TypeChanged, |d| at(d, "/components/schemas/Tree/properties/value")["type"] = json!("integer")),
];

#[rustfmt::skip]
const HARMLESS: &[(&str, Edit)] = &[
    ("nothing", |_| {}),
    ("new path", |d| at(d, "/paths")["/more"] = json!({"get": {"responses": {}}})),
    ("new method", |d| at(d, "/paths/~1things")["delete"] = json!({"responses": {}})),
    ("new optional parameter", |d| push(d, "/paths/~1things/get/parameters", json!({"name": "q", "in": "query", "schema": {}}))),
    ("parameter moved from the path to the operation", |d| {
        remove(d, "/paths/~1things", "parameters");
        let parameter = json!({"name": "trace", "in": "header", "schema": {"type": "string"}});
        at(d, CREATE)["parameters"] = json!([parameter]);
        push(d, "/paths/~1things/get/parameters", parameter);
    }),
    ("security dropped", |d| d["security"] = json!([])),
    ("another way in", |d| push(d, "/security", json!({"other": []}))),
    ("new status", |d| at(d, "/paths/~1things/get/responses")["409"] = json!({"description": "x"})),
    ("status became a range", |d| {
        remove(d, "/paths/~1things/get/responses", "404");
        at(d, "/paths/~1things/get/responses")["4XX"] = json!({"description": "x"});
    }),
    ("new media type", |d| at(d, "/components/requestBodies/New/content")["text/plain"] = json!({})),
    ("new header", |d| at(d, "/paths/~1things/get/responses/200/headers")["X-More"] = json!({"schema": {}})),
    ("header in other letters", |d| {
        remove(d, "/paths/~1things/get/responses/200/headers", "X-Count");
        at(d, "/paths/~1things/get/responses/200/headers")["x-count"] = json!({"required": true, "schema": {"type": "integer"}});
    }),
    ("new optional body", |d| at(d, LIST)["requestBody"] = json!({"content": {}})),
    ("new output field", |d| *field(d, THING, "more") = json!({"type": "string"})),
    ("new required output field", |d| {
        *field(d, THING, "more") = json!({"type": "string"});
        push(d, "/components/schemas/Thing/required", json!("more"));
    }),
    ("optional output field always there now", |d| push(d, "/components/schemas/Thing/required", json!("ratio"))),
    ("output enum shrank", |d| at(d, "/components/schemas/State")["enum"] = json!(["on"])),
    ("output number became an integer", |d| field(d, THING, "ratio")["type"] = json!("integer")),
    ("output never null now", |d| *field(d, THING, "parent") = json!({"$ref": "#/components/schemas/Thing"})),
    ("output gained a format", |d| field(d, THING, "ratio")["format"] = json!("double")),
    ("output bounds", |d| field(d, THING, "count")["minimum"] = json!(0)),
    ("output variant gone", |d| drop(field(d, THING, "source")["oneOf"].as_array_mut().unwrap().pop())),
    ("output union became one of its variants", |d| {
        let only = field(d, THING, "source")["oneOf"][1].take();
        *field(d, THING, "source") = only;
    }),
    ("variants in another order", |d| field(d, THING, "source")["oneOf"].as_array_mut().unwrap().reverse()),
    ("enum written without oneOf", |d| *field(d, THING, "phase") = json!({"type": "string", "enum": ["b", "a"]})),
    ("nullable written differently", |d| *field(d, THING, "parent") = json!({"nullable": true, "allOf": [{"$ref": "#/components/schemas/Thing"}]})),
    ("nullable by the schema instead of the wrapping", |d| {
        *field(d, THING, "parent") = json!({"$ref": "#/components/schemas/OrNull"});
        at(d, "/components/schemas")["OrNull"] = json!({"nullable": true, "allOf": [{"$ref": "#/components/schemas/Thing"}]});
    }),
    ("inlined instead of referenced", |d| *field(d, THING, "state") = json!({"type": "string", "enum": ["on", "off"]})),
    ("inlined instead of allOf", |d| *field(d, THING, "base") = json!({"$ref": "#/components/schemas/Base"})),
    ("new write-only field in output", |d| *field(d, THING, "pin") = json!({"type": "string", "writeOnly": true})),
    ("new optional input field", |d| *field(d, NEW, "more") = json!({"type": "string"})),
    ("input field no longer required", |d| remove(d, "/components/schemas/NewThing", "required")),
    ("read-only required field in input", |d| {
        *field(d, NEW, "id") = json!({"type": "string", "readOnly": true});
        push(d, "/components/schemas/NewThing/required", json!("id"));
    }),
    ("input enum grew", |d| push(d, "/components/schemas/NewThing/properties/mode/enum", json!("safe"))),
    ("input enum opened", |d| remove(d, "/components/schemas/NewThing/properties/mode", "enum")),
    ("input may be null", |d| field(d, NEW, "mode")["nullable"] = json!(true)),
    ("input integer became a number", |d| field(d, NEW, "size")["type"] = json!("number")),
    ("lower minimum", |d| field(d, NEW, "size")["minimum"] = json!(0)),
    ("higher maximum", |d| field(d, NEW, "size")["maximum"] = json!(1000)),
    ("longer text", |d| field(d, NEW, "name")["maxLength"] = json!(64)),
    ("pattern dropped", |d| remove(d, "/components/schemas/NewThing/properties/name", "pattern")),
    ("length limit dropped", |d| remove(d, "/components/schemas/NewThing/properties/name", "maxLength")),
    ("minimal length zero", |d| field(d, NEW, "note")["minLength"] = json!(0)),
    ("input variant added", |d| push(d, "/components/schemas/NewThing/properties/target/anyOf", json!({"type": "boolean"}))),
    ("input became a union", |d| *field(d, NEW, "amount") = json!({"anyOf": [{"type": "string"}, {"type": "number"}]})),
    ("description changed", |d| at(d, LIST)["summary"] = json!("other words")),
];

#[test]
fn every_breaking_edit_is_found_as_what_it_is() {
    let old = document();
    for (name, kind, edit) in BREAKING {
        let mut new = document();
        edit(&mut new);
        let breaks = compare(&old, &new);
        assert!(breaks.iter().any(|found| found.kind == *kind), "{name}: {breaks:?}");
    }
}

#[test]
fn every_kind_of_break_has_an_example() {
    let shown: BTreeSet<Kind> = BREAKING.iter().map(|(_, kind, _)| *kind).collect();
    let missing: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| !shown.contains(kind)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn harmless_growth_is_no_break() {
    let old = document();
    for (name, edit) in HARMLESS {
        let mut new = document();
        edit(&mut new);
        let breaks = compare(&old, &new);
        assert!(breaks.is_empty(), "{name}: {breaks:?}");
    }
}

#[test]
fn a_change_is_reported_once_under_the_name_of_its_schema() {
    let mut new = document();
    remove(&mut new, THING, "ratio");
    let breaks = compare(&document(), &new);
    assert_eq!(breaks.len(), 1, "{breaks:?}");
    assert_eq!(breaks[0].at, "#/components/schemas/Thing/ratio");
}

#[test]
fn a_schema_used_both_ways_is_judged_both_ways() {
    let both = |schema: Value| {
        let content = json!({"application/json": {"schema": {"$ref": "#/components/schemas/Both"}}});
        json!({
            "paths": {"/x": {"put": {"requestBody": {"content": content}, "responses": {"200": {"content": content}}}}},
            "components": {"schemas": {"Both": schema}}
        })
    };
    let enumeration = |values: Value| both(json!({"type": "string", "enum": values}));
    let kinds =
        |old: &Value, new: &Value| compare(old, new).into_iter().map(|found| found.kind).collect::<Vec<_>>();
    let (two, three) = (enumeration(json!(["a", "b"])), enumeration(json!(["a", "b", "c"])));
    assert_eq!(kinds(&two, &three), [Kind::OutputEnumGrew]);
    assert_eq!(kinds(&three, &two), [Kind::InputEnumShrank]);
}

#[test]
fn schemas_that_refer_to_themselves_end() {
    let with = |schema: Value| {
        let content = json!({"application/json": {"schema": {"$ref": "#/components/schemas/A"}}});
        json!({
            "paths": {"/x": {"post": {"requestBody": {"content": content}, "responses": {"200": {"content": content}}}}},
            "components": {"schemas": {"A": schema}}
        })
    };
    let a = json!({"$ref": "#/components/schemas/A"});
    for schema in [
        a.clone(),
        json!({"allOf": [a.clone()]}),
        json!({"allOf": [a.clone(), {"type": "object"}]}),
        json!({"anyOf": [{"type": "object", "properties": {"l": a.clone()}}, {"type": "object", "properties": {"r": a.clone()}}]}),
        json!({"oneOf": [{"type": "array", "items": a.clone()}, {"type": "string"}]}),
        json!({"anyOf": [a.clone(), {"type": "string"}]}),
        json!({"anyOf": [a.clone(), a.clone(), {"allOf": [a.clone(), a.clone()]}]}),
        json!({"type": "object", "additionalProperties": a}),
    ] {
        let document = with(schema);
        assert!(compare(&document, &document).is_empty());
        assert!(!compare(&document, &json!({"paths": {}})).is_empty());
    }
}

#[test]
fn a_waiver_lets_one_value_through_and_no_other_break() {
    let mut new = document();
    push(&mut new, "/components/schemas/State/enum", json!("broken"));
    push(&mut new, "/components/schemas/State/enum", json!("lost"));
    remove(&mut new, THING, "ratio");
    let text = "[[waiver]]\nat = \"#/components/schemas/State\"\nvalue = \"broken\"\nreason = \"agreed\"\n\
                [[waiver]]\nat = \"#/components/schemas/Thing/ratio\"\nvalue = \"removed\"\nreason = \"no\"\n";
    let waivers = super::waivers::Waivers::parse(&text.parse().unwrap()).unwrap();
    let (stand, unused) = waivers.apply(compare(&document(), &new));
    let stand: Vec<_> = stand.into_iter().map(|found| (found.kind, found.detail)).collect();
    assert!(stand.contains(&(Kind::OutputEnumGrew, "\"lost\"".to_owned())), "{stand:?}");
    assert!(stand.contains(&(Kind::OutputFieldLost, "removed".to_owned())), "{stand:?}");
    assert_eq!(stand.len(), 2, "{stand:?}");
    assert_eq!(unused.len(), 1);
}

#[test]
fn work_for_nodes_is_judged_from_the_nodes_side() {
    let with = |input: Value, output: Value| json!({ "paths": {}, "x-gpuaas-tasks": { "a.do": { "input": input, "output": output } } });
    let fields = |names: &[&str]| {
        let properties: serde_json::Map<String, Value> =
            names.iter().map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect();
        json!({"type": "object", "required": names, "properties": properties})
    };
    let old = with(fields(&["x"]), fields(&["x"]));
    let kinds = |new: &Value| compare(&old, new).into_iter().map(|found| found.kind).collect::<Vec<_>>();
    assert!(kinds(&old).is_empty());
    assert_eq!(kinds(&with(fields(&[]), fields(&["x"]))), [Kind::OutputFieldLost]);
    assert_eq!(kinds(&with(fields(&["x"]), fields(&["x", "y"]))), [Kind::InputFieldRequired]);
    assert_eq!(kinds(&json!({ "paths": {} })), [Kind::InputVariantLost]);
    let signed = json!({ "paths": {}, "x-gpuaas-signed": { "Task": fields(&["x"]) } });
    let lost = |new: Value| compare(&signed, &new).into_iter().map(|found| found.kind).collect::<Vec<_>>();
    assert_eq!(lost(json!({ "paths": {} })), [Kind::OutputFieldLost]);
    assert_eq!(
        lost(json!({ "paths": {}, "x-gpuaas-signed": { "Task": fields(&[]) } })),
        [Kind::OutputFieldLost]
    );
}
