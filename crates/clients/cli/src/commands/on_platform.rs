//! Results about the whole platform: nodes, organizations, people and allocations are shown by name.

use sdk::Client;
use serde::Serialize;

use crate::{
    app::App,
    failure::Result,
    output::Columns,
    resources::names::{Scope, learn},
};

pub async fn list<T: Serialize>(app: &App, client: &Client, rows: &[T], columns: Columns) -> Result {
    learn(app, client, &Scope::Platform, rows).await;
    app.out.list(rows, columns)
}

pub async fn item<T: Serialize>(app: &App, client: &Client, one: &T, columns: Columns) -> Result {
    learn(app, client, &Scope::Platform, std::slice::from_ref(one)).await;
    app.out.item(one, columns)
}

/// A list with amounts.
pub async fn priced<T: Serialize>(app: &App, client: &Client, rows: &[T], columns: Columns) -> Result {
    learn(app, client, &Scope::Platform, rows).await;
    app.out.priced(rows, columns)
}

/// One thing with amounts.
pub async fn priced_item<T: Serialize>(app: &App, client: &Client, one: &T, columns: Columns) -> Result {
    learn(app, client, &Scope::Platform, std::slice::from_ref(one)).await;
    app.out.priced_item(one, columns)
}
