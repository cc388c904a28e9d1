//! The limit of the stack: a bare axum handler around the same query, without identity, limits or audit.

use axum::{Json, Router, extract::Path, extract::State, http::StatusCode, routing::get};
use sqlx::{
    PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use uuid::Uuid;

use crate::scenarios::{PROJECT_QUERY, ProjectRow};

pub async fn serve(port: u16, socket_dir: &str, org_id: Uuid) -> anyhow::Result<()> {
    let options = PgConnectOptions::new_without_pgpass()
        .socket(socket_dir)
        .username("gpuaas_app")
        .database("gpuaas")
        .options([("app.org_id", org_id.to_string())]);
    let pool =
        PgPoolOptions::new().max_connections(24).test_before_acquire(false).connect_with(options).await?;
    let app = Router::new()
        .route("/bare", get(|| async { "ok" }))
        .route("/projects/{id}", get(project))
        .with_state(pool);
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    axum::serve(listener, app).await?;
    Ok(())
}

async fn project(
    State(pool): State<PgPool>,
    Path(id): Path<Uuid>,
) -> Result<Json<serde_json::Value>, StatusCode> {
    let row: ProjectRow = sqlx::query_as(PROJECT_QUERY)
        .bind(id)
        .fetch_one(&pool)
        .await
        .map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(Json(serde_json::json!({ "id": row.id, "slug": row.slug, "name": row.name, "version": row.version })))
}
