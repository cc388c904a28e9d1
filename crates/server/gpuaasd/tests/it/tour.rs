//! `make tour` against what `make up` starts: a control plane, simulated nodes, a simulated payment provider.

use std::{fs::File, path::Path, process::Stdio, time::Duration};

use testkit::{PaySim, Server, ServerOptions, TestDb, WEBHOOK_PATH, eventually_within, money, program};

use crate::tools::{Background, command, root};

/// The tour promises two minutes; this machine may be busy with other tests.
const TOUR: Duration = Duration::from_secs(180);
const NODES_READY: Duration = Duration::from_secs(60);
const NEW_PASSWORD: &str = "correct horse battery staple 1"; // secret-scan: allow

const FLEET: &str =
    "[fleet]\nauto_approve_simulated = true\n[fleet.simulated]\nnodes = 1\nprofiles = [\"h200-8\"]\n";

struct Product {
    db: TestDb,
    server: Server,
    home: tempfile::TempDir,
    _pay: PaySim,
    _nodes: Background,
}

impl Product {
    async fn start() -> Self {
        let db = TestDb::create().await;
        db.lift_rate_limits().await;
        let mut pay = PaySim::prepare();
        let config = format!("{FLEET}{}", pay.options().config);
        let server = Server::start_with(&db, ServerOptions { config, ..ServerOptions::default() }).await;
        pay.start(&format!("{}{WEBHOOK_PATH}", server.base), &[]).await;
        let nodes = simulated_nodes(&server.dir.path().join("data/simulated-fleet")).await;
        Self { db, server, home: tempfile::tempdir().unwrap(), _pay: pay, _nodes: nodes }
    }

    /// Takes the tour; gives whether it came to its end, and all that it said.
    async fn tour(&self, password: &str) -> (bool, String) {
        let said = self.home.path().join("tour.log");
        let log = File::create(&said).unwrap();
        let mut tour = command("bash");
        tour.arg(root().join("scripts/tour.sh"))
            .env("HOME", self.home.path())
            .env("XDG_CONFIG_HOME", self.home.path())
            .env("GPUAAS_SERVER", &self.server.base)
            .env("GPUAAS_TOUR_CLI", program("gpuaas"))
            .env("GPUAAS_TOUR_PASSWORD", password)
            .env("GPUAAS_TOUR_NEW_PASSWORD", NEW_PASSWORD)
            .stdin(Stdio::null())
            .stderr(log.try_clone().unwrap())
            .stdout(log);
        let mut tour = Background(tour.spawn().unwrap());
        let status = eventually_within(TOUR, "the tour is over", || {
            let status = tour.0.try_wait().unwrap();
            async move { status }
        })
        .await;
        (status.success(), std::fs::read_to_string(&said).unwrap())
    }
}

async fn simulated_nodes(dir: &Path) -> Background {
    let (join, log) = (dir.join("join.json"), dir.join("sim.log"));
    eventually_within(NODES_READY, "the nodes are listed", || async { join.exists().then_some(()) }).await;
    let log = File::create(log).unwrap();
    let mut nodes = command(program("gpuaas-node-sim"));
    nodes.arg("run").arg("--join").arg(&join).arg("--state").arg(dir.join("state"));
    nodes.stdin(Stdio::null()).stderr(log.try_clone().unwrap()).stdout(log);
    let nodes = Background(nodes.spawn().unwrap());
    eventually_within(NODES_READY, "the nodes are active", || async {
        let list = std::fs::read_to_string(&join).unwrap_or_default();
        list.contains("\"state\": \"active\"").then_some(())
    })
    .await;
    nodes
}

#[tokio::test]
async fn the_tour_comes_to_its_end_and_leaves_nothing_behind() {
    let product = Product::start().await;
    let password =
        std::fs::read_to_string(product.server.dir.path().join("data/first-admin-password")).unwrap();
    let (ok, said) = product.tour("not the password").await;
    assert!(!ok && said.contains("the sign-in ended at ") && !said.contains("not the password"), "{said}");

    let (ok, said) = product.tour(password.trim()).await;
    assert!(ok, "{said}");
    for part in [
        "Signed in to ",
        "$ gpuaas platform orgs create tour",
        "insufficient_balance",
        "(exit code 6, as expected)",
        "SIMULATED",
        "20.00 USD",
        "yes, currently",
        "\nactive\n",
        " available, ",
        "released",
        "the ledger failed verification: ledger of org_",
        "(exit code 1, as expected)",
        "Everything succeeded",
    ] {
        assert!(said.contains(part), "{part:?} in {said}");
    }
    assert!(!said.contains(password.trim()) && !said.contains(NEW_PASSWORD), "passwords are not said");
    for (what, sql) in [
        ("machines", "SELECT count(*) FROM allocations WHERE state NOT IN ('released', 'failed')"),
        ("keys", "SELECT count(*) FROM user_ssh_keys"),
        ("policies", "SELECT count(*) FROM policy_values WHERE key = 'billing.window_seconds'"),
    ] {
        assert_eq!(product.count(sql).await, 0, "{what} are left");
    }
    money::hold(&product.db).await;
}

impl Product {
    async fn count(&self, sql: &str) -> i64 {
        self.db.one(sql).await
    }
}
