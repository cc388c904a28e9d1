//! Worlds in which machines can be launched: simulated nodes as a real process, people with keys and projects, and
//! what they do with allocations.

use std::{
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use base64::Engine as _;
use serde_json::{Value, json};

use crate::{Answer, Api, Person, ServerOptions, World, eventually_within, process::child_kill, program};

/// Where the simulated nodes stand.
pub const REGION: &str = "test";
const PATIENCE: Duration = Duration::from_secs(30);
/// What a tenant begins with: more than any test uses, and no more than one administrator may give alone.
const FUNDS_MINOR: i64 = 100_000;

/// `gpuaas-node-sim` with a directory of its own, killed when dropped.
pub struct SimulatedNodes {
    pub dir: tempfile::TempDir,
    /// In the order in which they were made.
    pub ids: Vec<String>,
    pub hostnames: Vec<String>,
    list: Vec<Value>,
    arguments: Vec<String>,
    child: Option<Child>,
}

impl SimulatedNodes {
    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// From now on these rules (`[[script]]` in TOML) say what goes wrong; none when it is empty.
    pub fn script(&self, rules: &str) {
        // Replaced as a whole: the nodes may read at any moment.
        let next = self.file("script.next");
        std::fs::write(&next, rules).expect("write the script");
        std::fs::rename(&next, self.file("script.toml")).expect("replace the script");
    }

    // Test processes are started here, and only here.
    #[allow(clippy::disallowed_methods)]
    pub fn start(&mut self) {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.file("sim.log"));
        let log = log.expect("open the log");
        let errors = log.try_clone().expect("a second handle");
        let mut command = Command::new(program("gpuaas-node-sim"));
        command.args(["run", "--summary-seconds", "1"]).args(&self.arguments);
        for (flag, name) in [
            ("--join", "join.json"),
            ("--state", "state"),
            ("--script", "script.toml"),
            ("--report", "report.json"),
        ] {
            command.arg(flag).arg(self.file(name));
        }
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        self.child = Some(command.spawn().expect("start gpuaas-node-sim"));
    }

    /// kill -9: all nodes are gone from one moment to the next. Their disks stay, for the next start.
    pub fn kill(&mut self) {
        child_kill(&mut self.child);
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().map(Child::id).expect("the nodes run")
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.file("sim.log")).unwrap_or_default()
    }

    /// The nodes' own figures, at most a second old.
    pub fn report(&self) -> Value {
        let bytes = std::fs::read(self.file("report.json")).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or(Value::Null)
    }
}

impl Drop for SimulatedNodes {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let log = self.log();
            let skipped = log.len().saturating_sub(8_000);
            println!("the end of the simulated nodes' log:\n{}", log.get(skipped..).unwrap_or(&log));
        }
    }
}

impl World {
    /// A server that puts simulated nodes into service without asking anybody.
    pub async fn start_simulated() -> Self {
        Self::start_simulated_with(ServerOptions::default()).await
    }

    pub async fn start_simulated_with(options: ServerOptions) -> Self {
        let config = format!("[fleet]\nauto_approve_simulated = true\n{}", options.config);
        Self::start_with(ServerOptions { config, ..options }).await
    }

    /// Active simulated nodes in the region `test`: so many of each profile (`h200-8`, `h100-8`, `mi300x-8`, `cpu`).
    pub async fn simulated(&self, wanted: &[(&str, usize)]) -> SimulatedNodes {
        self.simulated_with(wanted, &[]).await
    }

    /// The same with more arguments for `gpuaas-node-sim run`.
    pub async fn simulated_with(&self, wanted: &[(&str, usize)], arguments: &[&str]) -> SimulatedNodes {
        let mut nodes = SimulatedNodes {
            dir: tempfile::Builder::new().prefix("gpuaas-sim-").tempdir().expect("a temporary directory"),
            ids: Vec::new(),
            hostnames: Vec::new(),
            list: Vec::new(),
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            child: None,
        };
        let region = json!({ "code": REGION, "name": "Test" });
        let made = self.admin.post("/api/v1/platform/regions", region).await;
        assert!(matches!(made.status, 201 | 409), "{}", made.text);
        for (profile, count) in wanted {
            for n in 1..=*count {
                self.simulated_node(&mut nodes, profile, &format!("simnode-{profile}-{n}")).await;
            }
        }
        let list = serde_json::to_vec(&nodes.list).expect("JSON");
        std::fs::write(nodes.file("join.json"), list).expect("write the list");
        nodes.start();
        for id in &nodes.ids {
            eventually_within(PATIENCE, "a simulated node is active", || async {
                (self.node_state(id).await == "active").then_some(())
            })
            .await;
        }
        nodes
    }

    async fn simulated_node(&self, nodes: &mut SimulatedNodes, profile: &str, hostname: &str) {
        // Users reach them at an address that does not tell the name of the node.
        let ssh_host = format!("m{}.users.example.org", nodes.ids.len());
        let labels = json!({ "simulated": "true" });
        let body = json!({
            "hostname": hostname, "region": REGION, "simulated": true, "labels": labels, "ssh_host": ssh_host,
        });
        let made = self.admin.post("/api/v1/platform/nodes", body).await.expect(201);
        let (join, token) = (&made["bootstrap"]["join"], &made["bootstrap"]["token"]);
        nodes.list.push(json!({ "join": join, "token": token, "profile": profile }));
        nodes.ids.push(made["node"]["id"].as_str().expect("an id").to_owned());
        nodes.hostnames.push(hostname.to_owned());
    }

    /// Gives an organization money, as administrators do: what one of them may not give alone, another approves.
    pub async fn fund(&self, org_id: &str, amount_minor: i64) {
        const ADJUSTMENTS: &str = "/api/v1/platform/billing/adjustments";
        let body = json!({ "org_id": org_id, "kind": "credit", "amount_minor": amount_minor, "reason": "to begin with" });
        let key = || kernel::Ambient::system().uuid().to_string();
        let made = self.admin.post_once(&key(), ADJUSTMENTS, body).await.expect(201);
        if made["state"] == "proposed" {
            let treasurer = self.person("treasurer").await;
            self.grant_platform_role(&treasurer, "platform_admin").await;
            let approve = format!("{ADJUSTMENTS}/{}/approve", made["id"].as_str().expect("an id"));
            treasurer.api.post_once(&key(), &approve, json!({})).await.expect(200);
        }
    }

    /// Somebody with an SSH key, money, and a project in their own organization.
    pub async fn tenant(&self, name: &str) -> Tenant {
        let tenant = self.poor_tenant(name).await;
        self.fund(&tenant.person.org_id, FUNDS_MINOR).await;
        tenant
    }

    /// The same without the money.
    pub async fn poor_tenant(&self, name: &str) -> Tenant {
        let person = self.person(name).await;
        person.add_key("laptop", &made_up_key()).await;
        let path = format!("/api/v1/orgs/{}/projects", person.org_id);
        let slug = format!("{name}-lab");
        let project = person.api.post(&path, json!({ "name": slug, "slug": slug })).await.expect(201);
        Tenant { person, project: project["id"].as_str().expect("an id").to_owned() }
    }

    /// How many machines of a product could be launched now in the region `test`, as the catalog says.
    pub async fn free(&self, sku: &str) -> i64 {
        let catalog = self.admin.get("/api/v1/catalog").await.expect(200);
        let entries = catalog["items"].as_array().expect("entries");
        let entry = entries.iter().find(|e| e["sku"] == sku).unwrap_or_else(|| panic!("{sku} in {catalog}"));
        let region = entry["regions"].as_array().and_then(|r| r.iter().find(|r| r["region"] == REGION));
        region.map_or(0, |r| r["launchable"].as_i64().unwrap_or_else(|| panic!("a count in {r}")))
    }

    /// The allocation as operators see it, with where it stands and what its workflows did.
    pub async fn allocation(&self, id: &str) -> Value {
        self.admin.get(&format!("/api/v1/platform/allocations/{id}")).await.expect(200)
    }

    /// The states of the slots that an allocation has or had.
    pub async fn slot_states(&self, id: &str) -> Vec<String> {
        let allocation = self.allocation(id).await;
        let mut states = Vec::new();
        for slot in allocation["slot_ids"].as_array().expect("slots") {
            let path = format!("/api/v1/platform/slots/{}", slot.as_str().expect("an id"));
            let slot = self.admin.get(&path).await.expect(200);
            states.push(slot["state"].as_str().expect("a state").to_owned());
        }
        states
    }
}

/// A well-formed public key that nobody has the other half of.
pub fn made_up_key() -> String {
    let mut blob = vec![0, 0, 0, 11];
    blob.extend(b"ssh-ed25519\x00\x00\x00\x20");
    blob.extend(kernel::Ambient::system().bytes::<32>());
    format!("ssh-ed25519 {}", base64::engine::general_purpose::STANDARD.encode(blob))
}

impl Person {
    pub async fn add_key(&self, name: &str, public_key: &str) {
        let body = json!({ "name": name, "public_key": public_key });
        self.api.post("/api/v1/me/ssh-keys", body).await.expect(201);
    }
}

/// Somebody in one project.
#[derive(Clone)]
pub struct Tenant {
    pub person: Person,
    pub project: String,
}

impl Tenant {
    pub fn api(&self) -> &Api {
        &self.person.api
    }

    /// A path below the project's allocations: nothing, or `/{id}` and more.
    pub fn path(&self, rest: &str) -> String {
        format!("/api/v1/projects/{}/allocations{rest}", self.project)
    }

    /// Asks for a machine; every call is a request of its own.
    pub async fn request(&self, body: Value) -> Answer {
        let key = kernel::Ambient::system().uuid().to_string();
        self.api().post_once(&key, &self.path(""), body).await
    }

    /// Asks for a machine, which must be accepted; gives its id.
    pub async fn launch(&self, body: Value) -> String {
        let made = self.request(body).await.expect(202);
        made["id"].as_str().expect("an id").to_owned()
    }

    /// A machine that is ready.
    pub async fn active(&self, body: Value) -> String {
        let id = self.launch(body).await;
        self.until(&id, "active").await;
        id
    }

    pub async fn get(&self, id: &str) -> Value {
        self.api().get(&self.path(&format!("/{id}"))).await.expect(200)
    }

    pub async fn state(&self, id: &str) -> String {
        self.get(id).await["state"].as_str().expect("a state").to_owned()
    }

    /// The allocation when it is in this state.
    pub async fn until(&self, id: &str, state: &str) -> Value {
        self.until_within(PATIENCE, id, &[state]).await
    }

    /// The allocation when it is in one of these states. One that is over in another is a failure at once.
    pub async fn until_within(&self, limit: Duration, id: &str, states: &[&str]) -> Value {
        eventually_within(limit, &format!("{id} is {states:?}"), || async {
            let allocation = self.get(id).await;
            let state = allocation["state"].as_str().expect("a state").to_owned();
            if states.contains(&state.as_str()) {
                return Some(allocation);
            }
            assert!(
                !matches!(state.as_str(), "failed" | "released"),
                "{id} should be {states:?}: {allocation}"
            );
            None
        })
        .await
    }

    /// `release`, `retry`, `restart` or `access/refresh`.
    pub async fn act(&self, id: &str, what: &str) -> Answer {
        self.api().post(&self.path(&format!("/{id}/{what}")), json!({})).await
    }

    /// Released, and nothing of it is left.
    pub async fn release(&self, id: &str) -> Value {
        self.act(id, "release").await.expect(202);
        self.until(id, "released").await
    }

    pub async fn events(&self, id: &str) -> Vec<Value> {
        let events = self.api().get(&self.path(&format!("/{id}/events?limit=500"))).await.expect(200);
        events["items"].as_array().expect("events").clone()
    }

    /// The names of its events of one kind, in order.
    pub async fn event_names(&self, id: &str, kind: &str) -> Vec<String> {
        let events = self.events(id).await;
        let of_kind = events.iter().filter(|event| event["kind"] == kind);
        of_kind.map(|event| event["name"].as_str().expect("a name").to_owned()).collect()
    }
}
