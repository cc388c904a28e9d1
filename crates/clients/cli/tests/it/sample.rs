//! A server that answers every list of the OpenAPI document with made-up rows: for what tables look like, nothing else.
//!
//! Rows are made from the schemas, so that a new list or a new field needs nothing here. Values are as long as such
//! values get.

use chrono::TimeDelta;
use serde_json::{Map, Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

pub struct Sample {
    document: Value,
}

impl Sample {
    /// Serves until the test ends: the address.
    pub async fn serve() -> String {
        Self::serve_some(usize::MAX).await
    }

    /// Serves so many requests: the address.
    pub async fn serve_some(most: usize) -> String {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../openapi/public.json");
        let document = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let sample = std::sync::Arc::new(Self { document });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            for _ in 0..most {
                let Ok((stream, _)) = listener.accept().await else { return };
                let sample = sample.clone();
                tokio::spawn(async move { sample.answer(stream).await });
            }
        });
        address
    }

    async fn answer(&self, mut stream: TcpStream) -> Option<()> {
        let mut request = Vec::new();
        while !request.windows(4).any(|end| end == b"\r\n\r\n") {
            let mut piece = [0; 4096];
            let read = stream.read(&mut piece).await.ok().filter(|read| *read > 0)?;
            request.extend_from_slice(&piece[..read]);
        }
        let line = String::from_utf8_lossy(&request).lines().next()?.to_owned();
        let path = line.split(' ').nth(1)?.split('?').next()?.to_owned();
        let (status, body) = match self.get(&path) {
            Some(body) => ("200 OK", body),
            None => ("404 Not Found", json!({ "error": { "code": "not_found", "message": path } })),
        };
        let body = body.to_string();
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes()).await.ok()
    }

    fn get(&self, path: &str) -> Option<Value> {
        let wanted: Vec<&str> = path.split('/').collect();
        let fits = |known: &str| {
            let known: Vec<&str> = known.split('/').collect();
            known.len() == wanted.len()
                && known.iter().zip(&wanted).all(|(known, wanted)| known.starts_with('{') || known == wanted)
        };
        let paths = self.document["paths"].as_object()?;
        let mut found: Vec<&Value> =
            paths.iter().filter(|(known, _)| fits(known)).map(|(_, item)| &item["get"]).collect();
        // `/orgs/{org}` and `/orgs/mine` both fit: the plain one comes first in the document's order of length.
        let operation = found.pop()?;
        let schema = &operation["responses"]["200"]["content"]["application/json"]["schema"];
        Some(self.value(schema, "", 0))
    }

    fn value(&self, schema: &Value, name: &str, row: usize) -> Value {
        if let Some(reference) = schema["$ref"].as_str() {
            let kind = reference.rsplit('/').next().unwrap();
            return self.value(&self.document["components"]["schemas"][kind], name, row);
        }
        for several in ["allOf", "anyOf", "oneOf"] {
            if let Some(first) = schema[several].as_array().and_then(|several| several.first()) {
                return self.value(first, name, row);
            }
        }
        if let Some(values) = schema["enum"].as_array() {
            let mut values: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
            values.sort_by_key(|value| std::cmp::Reverse(value.len()));
            return json!(values[row.min(values.len() - 1)]);
        }
        match schema["type"].as_str() {
            Some("object") | None => self.object(schema, row),
            Some("array") if name == "items" => {
                json!([self.value(&schema["items"], "", 0), self.value(&schema["items"], "", 1)])
            }
            Some("array") => json!([self.value(&schema["items"], name, row)]),
            Some("boolean") => json!(row == 0),
            Some("integer") => json!(integer(name, row)),
            Some("number") => json!(12.345),
            Some(_) => json!(text(schema, name, row)),
        }
    }

    fn object(&self, schema: &Value, row: usize) -> Value {
        let properties = schema["properties"].as_object().into_iter().flatten();
        let fields: Map<String, Value> = properties
            .filter(|(name, _)| *name != "next_cursor")
            .map(|(name, schema)| (name.clone(), self.value(schema, name, row)))
            .collect();
        Value::Object(fields)
    }
}

fn integer(name: &str, row: usize) -> i64 {
    let small = i64::try_from(row).unwrap();
    match name {
        _ if name.ends_with("_minor") => 123_456 - 120_000 * small,
        _ if name.ends_with("_percent") => 87 - small,
        _ if name.ends_with("_ms") => 48_211,
        "seq" => 10_241 - small,
        "size_bytes" => 18_874_368,
        _ => 8 - small,
    }
}

fn text(schema: &Value, name: &str, row: usize) -> String {
    if schema["format"] == "date-time" {
        if ["period_start", "window_start", "window_end", "posted_at", "paid_at", "valid_from"]
            .contains(&name)
        {
            return format!("2026-11-0{}T10:00:00Z", 2 - row.min(1));
        }
        // Half an hour beside the whole hour, so that the test may take its time.
        let hours = i64::try_from(row).unwrap() * 40 + 3;
        let ago = TimeDelta::minutes(hours * 60 + 30);
        let future = ["expires", "depletion", "not_after", "until", "next_attempt", "ends"];
        let at = if future.iter().any(|word| name.contains(word)) {
            kernel::Ambient::system().now() + ago
        } else {
            kernel::Ambient::system().now() - ago
        };
        return at.to_rfc3339();
    }
    if schema["format"] == "uuid" {
        return "0193b3a0-0000-7000-8000-00000000c0de".to_owned();
    }
    if let Some(prefix) =
        schema["pattern"].as_str().and_then(|p| p.strip_prefix('^')).and_then(|p| p.split('[').next())
        && prefix.ends_with('_')
    {
        let digits =
            prefix.bytes().fold(row as u64 + 7, |sum, byte| sum.wrapping_mul(1_000_003) ^ u64::from(byte));
        let prefix = prefix.trim_start_matches('(').replace("|sa)", "");
        return format!("{prefix}0193b3a00000700080{:014x}", digits & 0xff_ffff_ffff_ffff);
    }
    let pair = match name {
        "name" | "display_name" | "org_name" | "project_name" => ["Protein folding sweep", "Web"],
        "hostname" => ["gpu-rack12-node07", "gpu-01"],
        "slug" => ["protein-folding", "web"],
        "email" | "invited_by_email" => ["ada.lovelace@example.org", "bo@example.org"],
        "invited_by" => ["Ada Lovelace", "Bo"],
        "sku" => ["h200-sxm-8x", "cpu-small"],
        "region" | "code" => ["eu-north-1", "us-1"],
        "currency" => ["USD", "USD"],
        "url" => ["https://hooks.example.org/gpuaas/events", "https://example.org/h"],
        "key" | "policy_key" => ["allocation.max_concurrent_per_user", "quota.gpus_per_org"],
        "fingerprint" => ["SHA256:uNiVztksCsDhcc0u9e8BrjJxoeyEF2fGL0vI3Zrn3Ac", "SHA256:x"],
        "version" | "agent_version" => ["1.14.2", "1.14.1"],
        "task_type" => ["slice.topology_discover", "access.apply"],
        "event_type" => ["billing.balance.low", "fleet.node.offline"],
        "month" => ["2026-11", "2026-10"],
        "day" => ["2026-11-15", "2026-11-14"],
        "source_ip" => ["203.0.113.117", "::1"],
        "reason" | "state_reason" | "message" | "failure" | "error" | "last_error" | "suggestion"
        | "purpose" | "description" | "meaning" | "title" | "text" | "because" | "cordon_reason" => {
            ["The fan of the second power supply turns too slowly and the card gets hot", "A test"]
        }
        _ => return format!("{} {}", name.replace('_', "-"), row + 1).replace(' ', "-"),
    };
    pair[row.min(1)].to_owned()
}
