//! The product under measurement: a release `gpuaasd` with its built-in Postgres, and people in it.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use serde_json::{Value, json};
use sqlx::{ConnectOptions as _, PgConnection, postgres::PgConnectOptions};
use testkit::{Api, free_port, sign_in_first_admin};
use uuid::Uuid;

use crate::{cpu, exec, report::Sample};

pub struct Product {
    // Dropped first: it writes below `dir` until it has ended.
    running: Option<exec::Running>,
    pub base: String,
    pub node_port: u16,
    ops: String,
    pub dir: tempfile::TempDir,
    config: PathBuf,
}

impl Product {
    pub fn prepare() -> anyhow::Result<Self> {
        Self::prepare_with("")
    }

    /// The same, with more settings.
    pub fn prepare_with(settings: &str) -> anyhow::Result<Self> {
        let dir = tempfile::Builder::new().prefix("gpuaas-bench-").tempdir()?;
        std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        let (port, ops, node_port) = (free_port(), free_port(), free_port());
        let config = dir.path().join("gpuaas.toml");
        let text = format!(
            "[server]\nlisten = \"127.0.0.1:{port}\"\nops_listen = \"127.0.0.1:{ops}\"\ndata_dir = \"{}\"\n\
             [node_gateway]\nlisten = \"127.0.0.1:{node_port}\"\n[fleet]\nauto_approve_simulated = true\n\
             [database]\napp_connections = 96\n\
             [telemetry]\nlog_filter = \"warn\"\n{settings}",
            dir.path().join("data").display()
        );
        std::fs::write(&config, text)?;
        let (base, ops) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{ops}"));
        Ok(Self { base, node_port, ops, dir, config, running: None })
    }

    /// Starts and gives the time until `/readyz` said yes.
    pub async fn start(&mut self, roles: &[&str]) -> anyhow::Result<Duration> {
        let program = std::env::current_exe()?.with_file_name("gpuaasd");
        anyhow::ensure!(program.exists(), "build it first: cargo build --release -p gpuaasd");
        let mut command = exec::command(program);
        command.arg("--config").arg(&self.config).args(roles).arg("run");
        command
            .stdout(std::process::Stdio::null())
            .stderr(std::fs::File::create(self.dir.path().join("log"))?);
        let begun = Instant::now();
        self.running = Some(exec::Running::start(command)?);
        let http = testkit::http_client().timeout(Duration::from_secs(2)).build()?;
        while begun.elapsed() < Duration::from_secs(60) {
            let answer = http.get(format!("{}/readyz", self.ops)).send().await;
            if answer.is_ok_and(|a| a.status().is_success()) {
                return Ok(begun.elapsed());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        anyhow::bail!(
            "gpuaasd did not become ready: {}",
            std::fs::read_to_string(self.dir.path().join("log"))?
        )
    }

    pub fn stop(&mut self) {
        self.running = None;
    }

    pub fn pid(&self) -> u32 {
        self.running.as_ref().map_or(0, exec::Running::pid)
    }

    pub fn postmaster(&self) -> u32 {
        cpu::children(self.pid()).first().copied().unwrap_or(0)
    }

    /// Where the built-in server's socket is: it says so itself.
    pub fn socket_dir(&self) -> anyhow::Result<String> {
        let pid_file = self.dir.path().join("data/postgres/pgdata/postmaster.pid");
        let text =
            std::fs::read_to_string(&pid_file).with_context(|| format!("read {}", pid_file.display()))?;
        text.lines().nth(4).map(str::to_owned).context("no socket directory in postmaster.pid")
    }

    /// As the database's own superuser, whom the socket lets in.
    pub async fn database(&self) -> anyhow::Result<PgConnection> {
        let options = PgConnectOptions::new_without_pgpass()
            .socket(self.socket_dir()?)
            .username("gpuaas_super")
            .database("gpuaas");
        Ok(options.connect().await?)
    }

    /// One measurement: runs `work`, which takes so many seconds, and charges CPU to the processes that did it.
    pub async fn measure(
        &self,
        seconds: u32,
        server: u32,
        work: impl Future<Output = anyhow::Result<f64>>,
    ) -> anyhow::Result<Sample> {
        let postmaster = self.postmaster();
        let read =
            || (cpu::process_micros(server), cpu::family_micros(postmaster), cpu::finished_children_micros());
        let before = read();
        let per_second = work.await?;
        let after = read();
        let operations = per_second * f64::from(seconds);
        let per_operation = |a: u64, b: u64| b.saturating_sub(a) as f64 / operations;
        Ok(Sample {
            per_second,
            product_cpu: per_operation(before.0, after.0),
            postgres_cpu: per_operation(before.1, after.1),
            client_cpu: per_operation(before.2, after.2),
        })
    }

    /// A file that goes away with the product.
    pub fn file(&self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text)?;
        Ok(path)
    }

    /// The administrator, with the rate limits out of the way.
    pub async fn administrator(&self) -> anyhow::Result<Api> {
        let api = sign_in_first_admin(&self.base, &self.dir.path().join("data")).await;
        lift_limits(&api).await;
        Ok(api)
    }
}

/// Takes the rate limits out of the way.
pub async fn lift_limits(api: &Api) {
    for lane in ["api", "admin_overview", "financial"] {
        let path = format!("/api/v1/platform/policies/rate_limit.{lane}_requests_per_minute");
        api.put(&path, json!({ "value": 10_000_000 })).await.expect(200);
    }
}

/// More than any benchmark spends, in minor units.
const FUNDS: i64 = 1_000_000_000_000;

/// Pays in for an organization, as if somebody had topped it up.
pub async fn fund(db: &mut PgConnection, org: Uuid) -> anyhow::Result<()> {
    let sql = "SELECT seq FROM ledger_append(ROW($1, 'USD', now(), gen_random_uuid(), 'topup', NULL, 'bench', NULL, 'system', NULL,
        gen_random_uuid())::new_posting, ROW(ARRAY['prepaid', 'cash_stripe'], ARRAY[$2, -$2], array_fill(NULL::uuid, ARRAY[2]),
        array_fill(NULL::uuid, ARRAY[2]), array_fill(NULL::uuid, ARRAY[2]), array_fill(NULL::uuid, ARRAY[2]),
        array_fill(NULL::timestamptz, ARRAY[2]), array_fill(NULL::timestamptz, ARRAY[2]))::line_batch)";
    sqlx::query(sql).bind(org).bind(FUNDS).execute(db).await?;
    Ok(())
}

/// A new organization and a project in it.
pub async fn org_with_project(api: &Api, slug: &str) -> (Value, Value) {
    let org = api.post("/api/v1/platform/orgs", json!({ "name": slug, "slug": slug })).await.expect(201);
    let path = format!("/api/v1/orgs/{}/projects", org["id"].as_str().unwrap_or_default());
    let project = api.post(&path, json!({ "name": "p", "slug": "p" })).await.expect(201);
    (org, project)
}
