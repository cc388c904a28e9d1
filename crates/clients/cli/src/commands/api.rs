//! `gpuaas api`.

use clap::Args as ClapArgs;
use sdk::{
    RawRequest,
    reqwest::{
        Method,
        header::{HeaderName, HeaderValue},
    },
};
use serde_json::Value;

use super::read_input;
use crate::{
    app::App,
    args::Format,
    failure::{Failure, Result, local},
    output::{write, write_bytes},
};

/// Paths are those of the API document; `/orgs` means `/api/v1/orgs`. Mutations get an idempotency key
/// unless one is given with --header.
#[derive(ClapArgs)]
pub struct Command {
    /// GET, POST, PUT, PATCH or DELETE.
    #[arg(value_parser = method)]
    method: Method,
    /// Path, such as /orgs or /api/v1/orgs.
    path: String,
    /// The JSON body: literal, `@file`, or `-` for standard input.
    #[arg(short, long, value_name = "JSON")]
    data: Option<String>,
    /// Additional header, such as `If-Match: 3`.
    #[arg(short = 'H', long, value_name = "NAME: VALUE", value_parser = header)]
    header: Vec<(HeaderName, HeaderValue)>,
}

fn method(text: &str) -> std::result::Result<Method, String> {
    let method = text.to_ascii_uppercase();
    match method.as_str() {
        "GET" | "POST" | "PUT" | "PATCH" | "DELETE" => {
            Method::from_bytes(method.as_bytes()).map_err(|e| e.to_string())
        }
        _ => Err("must be GET, POST, PUT, PATCH or DELETE".to_owned()),
    }
}

fn header(text: &str) -> std::result::Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text.split_once(':').ok_or("must be of the form `Name: value`")?;
    let name = name.trim().parse::<HeaderName>().map_err(|error| error.to_string())?;
    let value = value.trim().parse::<HeaderValue>().map_err(|error| error.to_string())?;
    Ok((name, value))
}

fn full_path(path: &str) -> String {
    let path = format!("/{}", path.trim_start_matches('/'));
    if path.starts_with("/api/") { path } else { format!("/api/v1{path}") }
}

fn body(data: &str) -> Result<Value> {
    let text = match data.strip_prefix('@') {
        Some(file) => read_input(file)?,
        None if data == "-" => read_input("-")?,
        None => data.to_owned(),
    };
    serde_json::from_str(&text).map_err(|error| Failure::client(format!("the body is not JSON: {error}")))
}

pub async fn run(app: &App, command: Command) -> Result {
    let request = RawRequest {
        method: command.method,
        path: full_path(&command.path),
        headers: command.header,
        body: command.data.as_deref().map(body).transpose()?,
    };
    let response = app.client().await?.raw(request).await?;
    let bytes = response.bytes().await.map_err(|error| Failure::from(sdk::Error::Network(error)))?;
    match serde_json::from_slice::<Value>(&bytes) {
        Ok(value) if app.out.format == Format::Yaml => {
            write(&serde_yaml_ng::to_string(&value).map_err(local("the result cannot be printed"))?)
        }
        Ok(value) => write(&format!("{value:#}\n")),
        // Not JSON, such as an export: print it unchanged.
        Err(_) => write_bytes(&bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_paths_are_completed() {
        assert_eq!(full_path("/orgs"), "/api/v1/orgs");
        assert_eq!(full_path("orgs?page_size=1"), "/api/v1/orgs?page_size=1");
        assert_eq!(full_path("/api/v1/me"), "/api/v1/me");
    }

    #[test]
    fn what_is_not_json_is_not_sent() {
        assert!(body("{").is_err());
        assert_eq!(body("{\"a\":1}").unwrap()["a"], 1);
        assert!(body("@/does/not/exist").is_err());
    }
}
