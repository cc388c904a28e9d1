//! What is measured, and beside what.

use std::{fmt::Write as _, path::PathBuf};

use serde_json::Value;
use testkit::{Api, free_port};
use uuid::Uuid;

use crate::{
    API_EXPECTED, cpu, exec,
    load::{self, CLIENTS},
    product::{Product, org_with_project},
    progress::Progress,
    report::{Peer, Report, median},
};

/// The least shares of pgbench's rate, with the same SQL on the same socket, that we mean to reach.
const READ_AIM: f64 = 0.5;
const WRITE_AIM: f64 = 0.6;

const NOTE: &str = "pgbench has no HTTP in front of it and no caller to identify: its rows are the floor of the database, \
     the bare handlers the limit of the stack. Compare ours with both.";

/// The query behind `GET /api/v1/projects/{project_id}`.
pub const PROJECT_QUERY: &str = "SELECT id, slug, name, version FROM projects WHERE id = $1";

#[derive(sqlx::FromRow)]
pub struct ProjectRow {
    pub id: Uuid,
    pub slug: String,
    pub name: String,
    pub version: i64,
}

struct Bench {
    product: Product,
    pgbench: PathBuf,
    seconds: u32,
    pairs: usize,
    report: Report,
}

pub async fn all(seconds: u32, pairs: usize) -> anyhow::Result<String> {
    let mut bench = Bench {
        product: Product::prepare()?,
        pgbench: load::find_pgbench()?,
        seconds,
        pairs,
        report: Report::new("The API", NOTE, Progress::new("api", 4, API_EXPECTED)),
    };
    bench.report.step("starts");
    bench.start_up().await?;
    let admin = bench.product.administrator().await?;
    bench.report.step("reads");
    bench.read(&admin).await?;
    for orgs in [8, 1] {
        bench.report.step(&format!("writes, {orgs} organization(s)"));
        bench.write(&admin, orgs).await?;
    }
    Ok(bench.report.render())
}

pub fn uuid_of(value: &Value) -> anyhow::Result<Uuid> {
    let text = value.as_str().unwrap_or_default();
    Ok(Uuid::try_parse(text.split('_').next_back().unwrap_or_default())?)
}

impl Bench {
    async fn start_up(&mut self) -> anyhow::Result<()> {
        let first = self.product.start(&["--roles", "all"]).await?;
        let mut starts = Vec::new();
        for _ in 0..self.pairs {
            self.product.stop();
            starts.push(self.product.start(&["--roles", "all"]).await?);
        }
        starts.sort();
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        let resident = cpu::resident_kib(self.product.pid()) as f64 / 1024.0;
        self.report.figure(
            "first start (initdb, migrations) to /readyz",
            format!("{:.2} s", first.as_secs_f64()),
            "",
        );
        let median = starts[starts.len() / 2].as_secs_f64();
        self.report.figure(
            "start on an existing data directory to /readyz",
            format!("{median:.2} s"),
            "< 2 s",
        );
        self.report.figure(
            "resident memory, idle, all roles, without Postgres",
            format!("{resident:.0} MB"),
            "< 120 MB",
        );
        // Loads are measured without the relay, whose work would be charged to the operation.
        self.product.stop();
        self.product.start(&["--roles", "api"]).await?;
        Ok(())
    }

    async fn read(&mut self, admin: &Api) -> anyhow::Result<()> {
        let (org, project) = org_with_project(admin, "reads").await;
        let (org_id, project_id) = (uuid_of(&org["id"])?, uuid_of(&project["id"])?);
        let socket = self.product.socket_dir()?;
        let peer_port = free_port();
        let mut command = exec::command(std::env::current_exe()?);
        command.args(["peer", &peer_port.to_string(), &socket, &org_id.to_string()]);
        let peer = exec::Running::start(command)?;
        wait_for(peer_port).await?;

        let script =
            self.product.file("read.sql", &PROJECT_QUERY.replace("$1", &format!("'{project_id}'")))?;
        let settings = format!("-c app.org_id={org_id}");
        let url =
            format!("{}/api/v1/projects/{}", self.product.base, project["id"].as_str().unwrap_or_default());
        let headers = vec![format!("authorization: Bearer {}", admin.token.clone().unwrap_or_default())];
        let (bare_url, peer_url) = (
            format!("http://127.0.0.1:{peer_port}/bare"),
            format!("http://127.0.0.1:{peer_port}/projects/{project_id}"),
        );
        let (mut ours, mut pg, mut bare, mut with_pg) = (vec![], vec![], vec![], vec![]);
        for _ in 0..self.pairs {
            let (n, pid) = (self.seconds, self.product.pid());
            ours.push(self.product.measure(n, pid, load::wrk(&url, &headers, None, (CLIENTS, n))).await?);
            pg.push(
                self.product
                    .measure(n, 0, load::pgbench(&self.pgbench, &socket, &settings, &script, (CLIENTS, n)))
                    .await?,
            );
            with_pg.push(
                self.product
                    .measure(n, peer.pid(), load::wrk(&peer_url, &headers, None, (CLIENTS, n)))
                    .await?,
            );
            bare.push(
                self.product
                    .measure(n, peer.pid(), load::wrk(&bare_url, &headers, None, (CLIENTS, n)))
                    .await?,
            );
        }
        let peers = [
            Peer { name: "pgbench, same query", sample: median(&pg), aim: Some(READ_AIM) },
            Peer { name: "bare axum + sqlx, same query", sample: median(&with_pg), aim: None },
            Peer { name: "bare axum, no database", sample: median(&bare), aim: None },
        ];
        self.report.compare("GET one row, authenticated", median(&ours), &peers);
        Ok(())
    }

    async fn write(&mut self, admin: &Api, orgs: usize) -> anyhow::Result<()> {
        let me = admin.get("/api/v1/me").await.expect(200);
        let user = uuid_of(&me["id"])?;
        let mut ids = Vec::new();
        for n in 0..orgs {
            ids.push(org_with_project(admin, &format!("writes-{orgs}-{n}")).await.0["id"].clone());
        }
        let uuids = ids.iter().map(uuid_of).collect::<anyhow::Result<Vec<_>>>()?;
        let socket = self.product.socket_dir()?;
        let sql = self.product.file(&format!("write-{orgs}.sql"), &write_sql(user, &uuids))?;
        let lua = self.product.file(
            &format!("write-{orgs}.lua"),
            &write_lua(&ids, admin.token.as_deref().unwrap_or_default()),
        )?;
        let (mut ours, mut pg) = (vec![], vec![]);
        for _ in 0..self.pairs {
            let (n, pid) = (self.seconds, self.product.pid());
            ours.push(
                self.product
                    .measure(n, pid, load::wrk(&self.product.base, &[], Some(&lua), (CLIENTS, n)))
                    .await?,
            );
            pg.push(
                self.product
                    .measure(n, 0, load::pgbench(&self.pgbench, &socket, "", &sql, (CLIENTS, n)))
                    .await?,
            );
        }
        let name =
            format!("POST project (audit + outbox + idempotency), {CLIENTS} clients, {orgs} organization(s)");
        let peer = Peer { name: "pgbench, same SQL", sample: median(&pg), aim: Some(WRITE_AIM) };
        self.report.compare(&name, median(&ours), &[peer]);
        Ok(())
    }
}

pub async fn wait_for(port: u16) -> anyhow::Result<()> {
    for _ in 0..400 {
        if tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(std::time::Duration::from_millis(25)).await;
    }
    anyhow::bail!("the peer on port {port} did not start")
}

/// The statements that one creation of a project runs, in their order.
fn write_sql(user: Uuid, orgs: &[Uuid]) -> String {
    let list = orgs.iter().map(|o| format!("'{o}'")).collect::<Vec<_>>().join(", ");
    let org = format!("(ARRAY[{list}]::uuid[])[:o]");
    let mut sql = format!("\\set n random(1, 4000000000000000000)\n\\set o random(1, {})\n", orgs.len());
    let id = "md5(:n::text)::uuid";
    let _ = write!(
        sql,
        "SELECT set_config('app.org_id', {org}::text, false), set_config('app.principal_id', '{user}', false);
BEGIN;
SELECT claimed, same_request, status, body FROM idempotency_claim('{user}', 'project_create', :n::text, sha256('x'), now());
INSERT INTO projects (id, org_id, slug, name, created_at, updated_at) VALUES ({id}, {org}, 's' || :n::text, 'Bench', now(), now()) RETURNING id, org_id, name, slug, version, created_at, updated_at;
SELECT write_finish(ROW(gen_random_uuid(), {org}, now(), 'user', '{user}', 'org_owner', NULL, 'project.create', 'project', {id}::text, NULL, NULL, NULL, gen_random_uuid(), '127.0.0.1', NULL, sha256('y'), NULL)::audit_entry, ROW(ARRAY[gen_random_uuid()], ARRAY['IDENTITY'], ARRAY['identity.project.created'], ARRAY[1::smallint], ARRAY[{org}], ARRAY[NULL::uuid], ARRAY[jsonb_build_object('slug', :n::text)])::event_batch, NULL, ROW('{user}', 'project_create', :n::text, 201::smallint, convert_to(repeat('x', 250), 'UTF8'))::stored_answer, ARRAY[]::text[]);
COMMIT;
"
    );
    sql
}

fn write_lua(orgs: &[Value], token: &str) -> String {
    let paths: Vec<String> = orgs
        .iter()
        .map(|o| format!("\"/api/v1/orgs/{}/projects\"", o.as_str().unwrap_or_default()))
        .collect();
    format!(
        "local paths = {{ {} }}
math.randomseed(os.time() * 1000 + tonumber(tostring({{}}):match('0x(%x+)'), 16) % 100000)
local run = tostring(math.random(1, 2000000000))
local n = 0
request = function()
  n = n + 1
  local slug = 'w' .. run .. '-' .. n
  local headers = {{ ['authorization'] = 'Bearer {token}', ['content-type'] = 'application/json', ['x-idempotency-key'] = slug }}
  return wrk.format('POST', paths[n % #paths + 1], headers, '{{\"name\":\"Bench\",\"slug\":\"' .. slug .. '\"}}')
end
",
        paths.join(", ")
    )
}
