//! Machines by commands alone, on simulated nodes.

use serde_json::{Value, json};
use testkit::{REGION, SimulatedNodes, Tenant, World, eventually};

use crate::kit::{Gpuaas, finish, interrupt, line_of, text};

pub const SLICE: &str = "h200-sxm-slice";

pub struct Cloud {
    pub world: World,
    pub nodes: SimulatedNodes,
    pub ann: Tenant,
    pub user: Gpuaas,
    pub operator: Gpuaas,
}

impl Cloud {
    /// One node with eight GPUs, and somebody with a project.
    pub async fn start() -> Self {
        let world = World::start_simulated().await;
        let nodes = world.simulated(&[("h200-8", 1)]).await;
        let ann = world.tenant("ann").await;
        let [user, operator] = Self::programs(&world, &ann, "1");
        Self { world, nodes, ann, user, operator }
    }

    /// For the user and for the operator, signed in in the session of this name.
    fn programs(world: &World, ann: &Tenant, session: &str) -> [Gpuaas; 2] {
        let [user, operator] = ["ann", "root"]
            .map(|name| Gpuaas::new(&world.server.base).env("GPUAAS_TOKEN", &world.idp.token(name, session)));
        [user.env("GPUAAS_PROJECT", &ann.project), operator]
    }

    /// After everything that was signed in was ended.
    pub fn sign_in_again(&mut self) {
        [self.user, self.operator] = Self::programs(&self.world, &self.ann, "again");
    }

    /// Launches a machine and waits until it is active.
    pub async fn launch(&self, gpus: u32, name: &str) -> Value {
        let gpus = gpus.to_string();
        let create = [
            "allocations",
            "create",
            "--sku",
            SLICE,
            "--gpus",
            &gpus,
            "--name",
            name,
            "--wait",
            "-o",
            "json",
        ];
        self.user.run(&create).await.json()
    }
}

/// The words of a command line that somebody was told to type, without the program.
fn words(said: &str) -> Vec<String> {
    let line = said.lines().find_map(|line| line.split_once("This would succeed now: gpuaas ")).unwrap();
    line.1.split_whitespace().map(str::to_owned).collect()
}

#[tokio::test]
async fn a_machine_is_found_launched_used_and_released_by_commands_alone() {
    let cloud = Cloud::start().await;
    let user = &cloud.user;
    let catalog = user.run(&["catalog", "--region", REGION]).await.ok();
    assert!(catalog.contains("4.50 USD per GPU hour") && catalog.contains("8 of 8 GPUs"), "{catalog}");
    assert!(!catalog.contains("mi300x"), "not in this region: {catalog}");
    let why = user.run(&["allocations", "explain", "--sku", SLICE, "--gpus", "2"]).await.ok();
    assert!(why.contains("yes, currently") && why.contains("9.00 USD per hour"), "{why}");

    let create = ["alloc", "create", "--sku", SLICE, "--gpus", "2", "--name", "train-1", "--wait"];
    let ran = user.run(&create).await;
    for part in ["provisioning\n", "  machine took ", " ms\n", "\nactive\n"] {
        assert!(ran.err.contains(part), "{part:?} in {}", ran.err);
    }
    let page = ran.ok();
    assert!(
        page.contains("gpuaas rm train-1")
            && page.contains("2 GPUs")
            && page.contains("the node is simulated"),
        "{page}"
    );
    let made = user.json(&["allocations", "get", "train-1"]).await;
    let id = text(&made["id"]);
    let listed = user.run(&["allocations", "list"]).await.ok();
    assert!(listed.contains(&id) && listed.contains("train-1"), "{listed}");

    // The tail of its id leads to it as well.
    assert_eq!(user.json(&["allocations", "show", &id[id.len() - 8..]]).await["id"], json!(id));

    // A simulated node has no SSH server, and that is said instead of a refused connection.
    let said = user.run(&["ssh", "train-1", "--", "nvidia-smi", "-L"]).await.fails(5);
    assert!(said.contains("simulated node") && said.contains("gpuaas terminal train-1"), "{said}");

    let restart = user.run(&["allocations", "restart", "train-1", "--yes", "--wait"]).await;
    assert!(restart.err.contains("  restarted"), "{restart:?}");
    restart.ok();
    user.run(&["allocations", "access", "refresh", "train-1"]).await.ok();
    let events = user.json(&["allocations", "events", "train-1"]).await;
    assert!(events.as_array().unwrap().iter().any(|event| event["name"] == "restarted"), "{events}");

    user.run(&["allocations", "release", "train-1"]).await.fails(1);
    let ran = user.run(&["allocations", "release", "train-1", "--yes", "--wait"]).await;
    assert!(ran.err.contains("released"), "{ran:?}");
    assert!(ran.ok().contains("released since"));
    assert_eq!(user.json(&["allocations", "list"]).await, json!([]));
    // The name still leads to it.
    assert_eq!(user.json(&["allocations", "list", "--all"]).await[0]["id"], json!(id));
    let followed = user.run(&["allocations", "events", "train-1", "--follow"]).await.ok();
    assert!(followed.contains("active") && followed.contains("released"), "{followed}");
    let said = user.run(&["ssh", "train-1"]).await.fails(5);
    assert!(said.contains("is released"), "{said}");
    user.run(&["allocations", "release", "train-1", "--yes", "--wait"]).await.ok();
    user.run(&["allocations", "get", "train-2"]).await.fails(4);
}

#[tokio::test]
async fn a_refusal_says_what_to_type_and_that_succeeds() {
    let cloud = Cloud::start().await;
    let user = &cloud.user;
    cloud.launch(4, "first").await;
    let create = ["allocations", "create", "--sku", SLICE, "--gpus", "8", "--name", "big one"];
    let said = user.run(&create).await.fails(6);
    assert!(said.contains("sku_unavailable") && said.contains("Reason: no_capacity_in_region."), "{said}");
    let why = user.run(&["allocations", "explain", "--sku", SLICE, "--gpus", "8"]).await.ok();
    assert!(why.contains("no_capacity_in_region") && words(&why).contains(&"4".to_owned()), "{why}");
    let create = ["allocations", "create", "--sku", SLICE, "--gpus", "8", "--name", "big"];
    let said = user.run(&create).await.fails(6);
    let told = words(&said);
    assert!(told.join(" ").starts_with(&format!("launch {SLICE} --gpus 4")), "{told:?}");
    user.run(&told.iter().map(String::as_str).collect::<Vec<_>>()).await.ok();

    let together = ["groups", "create", "--sku", SLICE, "--gpus", "1", "--members", "3"];
    let said = user.run(&together).await.fails(6);
    assert!(said.contains("Reason: "), "{said}");

    cloud.world.policy("quota.gpus_per_org", 8).await;
    for name in ["first", "big"] {
        user.run(&["allocations", "release", name, "--yes", "--wait"]).await.ok();
    }
    cloud.world.policy("quota.gpus_per_org", 1).await;
    let said = eventually("the limit is felt", || async {
        let create = ["allocations", "create", "--sku", SLICE, "--gpus", "2", "--name", "more"];
        let ran = user.run(&create).await;
        if ran.code == Some(0) {
            user.run(&["allocations", "release", "more", "--yes", "--wait"]).await.ok();
        }
        (ran.code == Some(6)).then_some(ran.err)
    })
    .await;
    assert!(said.contains("gpuaas policy explain quota.gpus_per_org"), "{said}");
}

#[tokio::test]
async fn a_launch_that_fails_says_why_and_one_with_the_same_key_is_the_same() {
    let cloud = Cloud::start().await;
    let user = &cloud.user;
    cloud.nodes.script("[[script]]\ntask = 'slice.vm_provision'\n");
    let create = ["allocations", "create", "--sku", SLICE, "--name", "doomed", "--wait"];
    let said = user.run(&create).await.fails(2);
    assert!(said.contains("the launch failed: the operation failed on the machine"), "{said}");
    assert!(said.contains("It is not billed") && said.contains("gpuaas allocations events alloc_"), "{said}");
    cloud.nodes.script("");

    let once = ["allocations", "create", "--sku", SLICE, "--name", "one", "--idempotency-key", "the-one"];
    let first = user.json(&once).await;
    assert_eq!(user.json(&once).await["id"], first["id"]);
    let said = user.run(&["launch", SLICE, "--name", "one"]).await.fails(5);
    assert!(said.contains("already named one") && said.contains("Choose another name"), "{said}");
    // The live one is meant, however many were called so before it.
    let live = cloud.launch(1, "doomed").await;
    assert_eq!(user.json(&["allocations", "show", "doomed"]).await["id"], live["id"]);
}

#[tokio::test]
async fn stopping_to_wait_leaves_the_launch_alone_and_says_how_to_go_on() {
    let cloud = Cloud::start().await;
    let user = &cloud.user;
    cloud.nodes.script("[[script]]\ntask = 'slice.vm_provision'\ndoes = 'hang'\nfor_ms = 3000\n");
    let mut child = user.start(&["allocations", "create", "--sku", SLICE, "--name", "slow", "--wait"]);
    line_of(&mut child, "provisioning").await;
    interrupt(&child);
    let said = finish(child).await.fails(130);
    assert!(
        said.contains("The operation continues") && said.contains("gpuaas allocations show alloc_"),
        "{said}"
    );
    let create = ["allocations", "create", "--sku", SLICE, "--name", "slower", "--wait", "--timeout", "1"];
    let said = user.run(&create).await.fails(2);
    assert!(said.contains("still in progress after 1 s"), "{said}");
    eventually("both are there in the end", || async {
        let live = user.json(&["allocations", "list", "--state", "active"]).await;
        (live.as_array().unwrap().len() == 2).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_group_is_launched_and_released_together_and_somebody_else_may_log_in() {
    let cloud = Cloud::start().await;
    let org = cloud.world.org("acme").await;
    cloud.world.fund(&org, 10_000).await;
    let project = cloud.world.project(&org, "lab").await;
    let bob = cloud.world.person("bob").await;
    cloud.world.join(&bob, &org, "member").await;
    bob.add_key("laptop", &testkit::made_up_key()).await;
    cloud.operator.run(&["projects", "members", "set", &bob.id, "member", "-p", &project]).await.ok();
    let key = format!("{} root@home\n", testkit::made_up_key());
    let root = &cloud.operator;
    root.run_with(&["ssh-keys", "add", "-"], &key).await.ok();
    let create = ["groups", "create", "--sku", SLICE, "--gpus", "2", "--members", "2", "--name", "pair"];
    let made = root.run(&[&create[..], &["-p", &project, "--wait", "-o", "json"]].concat()).await.json();
    assert_eq!((&made["state"], made["allocations"].as_array().unwrap().len()), (&json!("active"), 2));
    let in_project = |words: &[&'static str]| [words, &["-p"]].concat();
    let run = async |words: &[&'static str]| {
        let words = in_project(words);
        root.run(&[&words[..], &[project.as_str()]].concat()).await.ok()
    };
    assert!(run(&["groups", "get", "pair"]).await.contains("active"));
    assert!(run(&["groups", "list"]).await.contains("pair"));
    assert_eq!(run(&["allocations", "list", "--group", "pair", "--no-headers"]).await.lines().count(), 2);

    let one = text(&made["allocations"][0]["id"]);
    let grants = async |verb: &str, more: &[&str]| {
        let words = [&["allocations", "grants", verb, one.as_str()], more, &["-p", &project]].concat();
        root.run(&words).await
    };
    grants("add", &["bob@example.org"]).await.ok();
    assert!(grants("list", &["-o", "json"]).await.ok().contains(&bob.id));
    grants("add", &["nobody@example.org"]).await.fails(4);
    grants("remove", &["bob@example.org"]).await.ok();
    assert!(!grants("list", &["-o", "json"]).await.ok().contains(&bob.id));

    run(&["groups", "release", "pair", "--yes", "--wait"]).await;
    assert!(run(&["groups", "get", "pair"]).await.contains("released"));
}
