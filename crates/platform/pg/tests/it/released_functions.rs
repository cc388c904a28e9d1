//! Functions that are kept for the release before pass each of their arguments on to the field it belongs in.

use std::collections::BTreeMap;

use pg::Roles;
use serde_json::Value;
use sqlx::{AssertSqlSafe, Row as _, postgres::PgConnection};
use testkit::TestDb;

/// Overloads: those of the release before have no argument of a composite type, those of this release have.
const OVERLOADS: &str = "
    SELECT p.oid::regprocedure::text AS signature, p.proname::text AS name, pg_get_function_identity_arguments(p.oid) AS arguments,
        pg_get_function_result(p.oid) AS result, a.names, a.types, a.composite
    FROM pg_proc p
    JOIN pg_namespace n ON n.oid = p.pronamespace AND n.nspname = 'public'
    CROSS JOIN LATERAL (
        SELECT array_agg(p.proargnames[i] ORDER BY i) AS names, array_agg(format_type(t, NULL) ORDER BY i) AS types,
            bool_or(y.typtype = 'c') AS composite
        FROM unnest(p.proargtypes) WITH ORDINALITY AS g (t, i) JOIN pg_type y ON y.oid = t
    ) AS a
    WHERE (SELECT count(*) FROM pg_proc q WHERE q.proname = p.proname AND q.pronamespace = p.pronamespace) = 2
      AND EXISTS (SELECT FROM pg_proc q, unnest(q.proargtypes) AS t JOIN pg_type y ON y.oid = t AND y.typtype = 'c'
          WHERE q.proname = p.proname AND q.pronamespace = p.pronamespace)
    ORDER BY p.proname, a.composite";

struct Function {
    signature: String,
    name: String,
    arguments: String,
    result: String,
    names: Vec<String>,
    types: Vec<String>,
}

async fn overloads(owner: &mut PgConnection) -> Vec<(Function, Function)> {
    let rows = sqlx::query(OVERLOADS).fetch_all(owner).await.unwrap();
    let mut functions = rows.iter().map(|row| Function {
        signature: row.get("signature"),
        name: row.get("name"),
        arguments: row.get("arguments"),
        result: row.get("result"),
        names: row.get("names"),
        types: row.get("types"),
    });
    let mut pairs = Vec::new();
    while let (Some(before), Some(now)) = (functions.next(), functions.next()) {
        assert_eq!(before.name, now.name);
        pairs.push((before, now));
    }
    pairs
}

/// In place of a function: fails, and what it was called with is the message.
fn recorder(function: &Function) -> String {
    let Function { signature, name, arguments, result, names, .. } = function;
    let fields: Vec<String> = names.iter().map(|name| format!("'{name}', to_jsonb({name})")).collect();
    format!(
        "DROP FUNCTION {signature};
         CREATE FUNCTION {name}({arguments}) RETURNS {result} LANGUAGE plpgsql AS $$
         BEGIN RAISE EXCEPTION USING MESSAGE = jsonb_build_object({})::text; END $$;",
        fields.join(", ")
    )
}

/// Some value of a type, as a literal.
fn literal(of_type: &str) -> String {
    let element = of_type.trim_end_matches("[]");
    let value = match element {
        "uuid" => "00000000-0000-0000-0000-000000000007",
        "timestamp with time zone" | "date" => "2031-05-06",
        "boolean" => "true",
        "bytea" => "\\x07",
        _ => "7",
    };
    let value = if element == of_type {
        value.to_owned()
    } else {
        format!("{{\"{}\"}}", value.replace('\\', "\\\\"))
    };
    format!("'{value}'::{of_type}")
}

/// Where something stands that is not null.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Null => {}
        Value::Object(fields) => {
            for (name, value) in fields {
                places(value, &if at.is_empty() { name.clone() } else { format!("{at}.{name}") }, found);
            }
        }
        _ => found.push(at.to_owned()),
    }
}

/// Calls the function of the release before with one argument and otherwise nulls.
async fn place_of(owner: &mut PgConnection, before: &Function, argument: usize) -> Vec<String> {
    let arguments = before.names.iter().zip(&before.types).enumerate().map(|(n, (name, of_type))| {
        let value = if n == argument { literal(of_type) } else { format!("NULL::{of_type}") };
        format!("{name} => {value}")
    });
    let sql = format!("SELECT {}({})", before.name, arguments.collect::<Vec<_>>().join(", "));
    let error = sqlx::query(AssertSqlSafe(sql)).fetch_all(owner).await.expect_err("the recorder fails");
    let message = error.as_database_error().expect("an error of the database").message().to_owned();
    let seen = serde_json::from_str(&message).unwrap_or_else(|_| panic!("{}: {message}", before.signature));
    let mut found = Vec::new();
    places(&seen, "", &mut found);
    found
}

#[tokio::test]
async fn each_argument_of_the_release_before_arrives_where_it_belongs() {
    let test = TestDb::create().await;
    let mut owner = test.conn(Roles::Owner).await;
    let mut passed = BTreeMap::new();
    for (before, now) in overloads(&mut owner).await {
        test.sql(&recorder(&now)).await;
        for (argument, name) in before.names.iter().enumerate() {
            let places = place_of(&mut owner, &before, argument).await;
            assert_eq!(places.len(), 1, "{} passes {name} on to {places:?}", before.signature);
            passed.insert(format!("{} {name}", before.name), places.join(" "));
        }
    }
    let lines: String = passed.iter().map(|(argument, place)| format!("{argument} -> {place}\n")).collect();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/released_functions.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &lines).unwrap();
    }
    let expected = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(expected, lines, "read what changed, and accept it with UPDATE_GOLDEN=1");
}
