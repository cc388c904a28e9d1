//! What a handler receives: typed, checked, and already authorized.

use kernel::{Code, Problem};
use schemars::JsonSchema;
use serde::{Deserialize, de::DeserializeOwned};

use crate::{authorize::Access, declare::SchemaFn};

/// No parameters.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Empty {}

/// A JSON body or a JSON answer.
#[derive(Clone, Debug)]
pub struct Json<T>(pub T);

/// The request as the handler sees it.
pub struct In<P, Q, B> {
    pub path: P,
    pub query: Q,
    pub body: B,
    /// The version that the caller believes to be current (`If-Match`).
    pub if_match: Option<i64>,
    /// The last event that a client which comes again has seen (`Last-Event-ID`).
    pub last_event_id: Option<i64>,
    /// Who asks, where, and with which rights.
    pub access: Access,
}

/// What is left of the HTTP request when it reaches the typed part.
pub struct RawInput {
    pub path: Vec<(String, String)>,
    pub query: String,
    pub body: bytes::Bytes,
    pub if_match: Option<i64>,
    pub last_event_id: Option<i64>,
    pub access: Access,
}

/// `()` for no body, `Json<T>` for a JSON one.
pub trait BodyInput: Sized + Send + 'static {
    const SCHEMA: Option<SchemaFn>;
    fn parse(bytes: &[u8]) -> Result<Self, Problem>;
}

impl BodyInput for () {
    const SCHEMA: Option<SchemaFn> = None;
    fn parse(bytes: &[u8]) -> Result<Self, Problem> {
        if bytes.is_empty() || bytes == b"{}" {
            return Ok(());
        }
        Err(Problem::new(Code::InvalidRequest, "This operation accepts no request body."))
    }
}

impl<T: DeserializeOwned + JsonSchema + Send + 'static> BodyInput for Json<T> {
    const SCHEMA: Option<SchemaFn> = Some(|g| g.subschema_for::<T>());
    fn parse(bytes: &[u8]) -> Result<Self, Problem> {
        if bytes.is_empty() {
            return Err(Problem::new(Code::InvalidRequest, "The request needs a JSON body."));
        }
        let mut json = serde_json::Deserializer::from_slice(bytes);
        let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
            let inner = error.inner();
            if inner.is_syntax() || inner.is_eof() {
                return Problem::new(Code::InvalidRequest, format!("The body is not valid JSON: {inner}."));
            }
            field_problem(&error)
        })?;
        json.end().map_err(|error| {
            Problem::new(Code::InvalidRequest, format!("The body is not valid JSON: {error}."))
        })?;
        Ok(Self(value))
    }
}

fn field_problem<E: std::fmt::Display>(error: &serde_path_to_error::Error<E>) -> Problem {
    let path = error.path().to_string();
    let path = if path == "." { String::new() } else { path };
    // serde_json appends a position that means nothing once the field is named.
    let text = error.inner().to_string();
    let text = text.split(" at line ").next().unwrap_or(&text).to_owned();
    Problem::field(path, text)
}

pub(crate) fn parse_path<P: DeserializeOwned>(pairs: Vec<(String, String)>) -> Result<P, Problem> {
    let map = serde::de::value::MapDeserializer::<_, serde::de::value::Error>::new(pairs.into_iter());
    serde_path_to_error::deserialize(map).map_err(|error| field_problem(&error))
}

/// Query parameters must be known: a misspelt filter that is silently ignored shows the wrong list.
pub(crate) fn parse_query<Q: DeserializeOwned>(query: &str, known: &[String]) -> Result<Q, Problem> {
    let pairs: Vec<(String, String)> = serde_urlencoded::from_str(query).map_err(|error| {
        Problem::new(Code::InvalidRequest, format!("The query string is malformed: {error}."))
    })?;
    if !pairs.is_empty() {
        let mut seen: Vec<&str> = Vec::new();
        for (name, _) in &pairs {
            if !known.iter().any(|k| k == name) {
                let hint = if known.is_empty() { "there are none here".to_owned() } else { known.join(", ") };
                return Err(Problem::field(
                    name.clone(),
                    format!("is not a parameter of this operation ({hint})"),
                ));
            }
            if seen.contains(&name.as_str()) {
                return Err(Problem::field(name.clone(), "is given twice"));
            }
            seen.push(name);
        }
    }
    let error = match read_query(pairs.iter()) {
        Ok(query) => return Ok(query),
        Err(error) => error,
    };
    let path = error.path().to_string();
    if path != "." {
        return Err(field_problem(&error));
    }
    // A parameter of a flattened type has no path: it is the one without which the error is another.
    let text = error.inner().to_string();
    let without = |left_out: &str| read_query::<Q>(pairs.iter().filter(|(name, _)| name != left_out)).err();
    let wrong = pairs.iter().map(|(name, _)| name).find(|name| match without(name) {
        None => true,
        Some(other) => {
            let other = other.inner().to_string();
            other != text && !other.starts_with("missing field")
        }
    });
    Err(match wrong {
        Some(name) => Problem::field(name.clone(), text),
        None => field_problem(&error),
    })
}

/// As JSON, because there a present value also fits an optional field.
fn read_query<'a, Q: DeserializeOwned>(
    pairs: impl Iterator<Item = &'a (String, String)>,
) -> Result<Q, serde_path_to_error::Error<serde_json::Error>> {
    let map = pairs.map(|(name, value)| (name.clone(), serde_json::Value::String(value.clone())));
    serde_path_to_error::deserialize(serde_json::Value::Object(map.collect()))
}

/// The parameter names of a query type; computed once per endpoint.
pub(crate) fn known_parameters<Q: JsonSchema>() -> Vec<String> {
    let schema = crate::openapi::inline_schema_for::<Q>();
    let properties = schema.get("properties").and_then(|p| p.as_object());
    properties.map(|p| p.keys().cloned().collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use kernel::PageQuery;

    use super::*;

    #[derive(Deserialize, JsonSchema, Debug)]
    struct Body {
        #[allow(dead_code)]
        count: u8,
    }

    #[test]
    fn a_wrong_field_is_named_and_broken_json_is_not_a_field() {
        let wrong = <Json<Body> as BodyInput>::parse(br#"{"count": 300}"#).map(|_| ()).unwrap_err();
        assert_eq!(wrong.code, Code::ValidationError);
        assert_eq!(wrong.details["fields"][0]["field"], "count");
        for broken in [&b"{"[..], b"{\"count\":1} x", b"\xff", b""] {
            let problem = <Json<Body> as BodyInput>::parse(broken).map(|_| ()).unwrap_err();
            assert_eq!(problem.code, Code::InvalidRequest, "{broken:?}");
        }
    }

    #[derive(Deserialize, JsonSchema, Debug)]
    struct Filtered {
        #[allow(dead_code)]
        state: String,
        #[serde(flatten)]
        #[allow(dead_code)]
        page: PageQuery,
    }

    #[test]
    fn a_wrong_parameter_of_a_flattened_type_is_named() {
        let known = known_parameters::<Filtered>();
        for (query, field) in [
            ("state=x&page_size=0", "page_size"),
            ("state=x&cursor=zz", "cursor"),
            ("page_size=0&cursor=zz&state=x", "page_size"),
        ] {
            let problem = parse_query::<Filtered>(query, &known).unwrap_err();
            assert_eq!(problem.details["fields"][0]["field"], field, "{query}");
        }
    }

    #[test]
    fn query_numbers_are_read_and_unknown_or_repeated_parameters_refused() {
        let query: PageQuery = parse_query("page_size=7", &known_parameters::<PageQuery>()).unwrap();
        assert_eq!(query.limit(), 8);
        let cursor = format!("cursor=c{}", "0".repeat(31) + "7");
        let query: PageQuery = parse_query(&cursor, &known_parameters::<PageQuery>()).unwrap();
        assert_eq!(query.after(), uuid::Uuid::from_u128(7));
        for bad in ["page_size=0", "page_size=x", "pagesize=7", "page_size=1&page_size=2", "cursor=zz"] {
            assert_eq!(
                parse_query::<PageQuery>(bad, &known_parameters::<PageQuery>()).unwrap_err().code,
                Code::ValidationError,
                "{bad}"
            );
        }
    }
}
