//! Every statement of the programs, from the recorded queries.

use std::{fs, path::Path};

use serde_json::Value;

const CACHE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../.sqlx");

/// A statement, as `PREPARE` takes it.
pub struct Statement {
    /// Its beginning, or the function that it is in and its place there.
    pub name: String,
    pub sql: String,
    /// Of its parameters.
    pub types: Vec<String>,
    /// What its function sets while it runs: `name=value`.
    pub settings: Vec<String>,
}

pub fn recorded_statements() -> Vec<Statement> {
    let files = fs::read_dir(Path::new(CACHE)).unwrap().map(|file| file.unwrap().path());
    let mut all: Vec<Statement> = files.map(|file| recorded(&fs::read_to_string(file).unwrap())).collect();
    all.sort_by(|a, b| a.sql.cmp(&b.sql));
    all
}

fn recorded(text: &str) -> Statement {
    let cached: Value = serde_json::from_str(text).unwrap();
    let sql = cached["query"].as_str().unwrap().to_owned();
    let parameters = cached["describe"]["parameters"]["Left"].as_array();
    // The database finds out what they are.
    let types = parameters.map_or(0, Vec::len);
    let types = vec!["unknown".to_owned(); types];
    Statement { name: one_line(&sql), sql, types, settings: Vec::new() }
}

/// The text without line breaks, as lists name it.
pub fn one_line(sql: &str) -> String {
    sql.split_whitespace().collect::<Vec<_>>().join(" ")
}
