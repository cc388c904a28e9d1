//! The install script as it is run on a new machine: below a directory of its own, with a real agent and a real
//! node listener.

use std::{
    fs::File,
    io::Write as _,
    path::{Path, PathBuf},
};

use serde_json::json;
use testkit::{World, http_client, program};

use crate::tools::command;

struct Machine {
    root: tempfile::TempDir,
    script: String,
}

impl Machine {
    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Runs the script with `token` on standard input; gives whether it worked, and all output.
    fn install(&self, args: &[&str], token: &str) -> (bool, String) {
        let input = self.path("token");
        File::create(&input).unwrap().write_all(token.as_bytes()).unwrap();
        let output = command("sh")
            .args(["-c", &self.script, "install"])
            .args(args)
            .env("GPUAAS_PREFIX", self.root.path())
            .stdin(File::open(&input).unwrap())
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }
}

async fn fetched(world: &World) -> String {
    let client = http_client().build().unwrap();
    let answer = client.get(format!("{}/install/agent.sh", world.server.base)).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    answer.text().await.unwrap()
}

fn offer(world: &World, version: &str) {
    let dir = world.server.dir.path().join("data/programs");
    std::fs::create_dir_all(&dir).unwrap();
    let name = format!("gpuaas-agent-{version}-{}", std::env::consts::ARCH);
    std::fs::copy(program("gpuaas-agent"), dir.join(name)).unwrap();
}

fn mode(path: &Path) -> u32 {
    std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions()) & 0o777
}

#[tokio::test]
async fn the_install_script_fetches_the_agent_and_enrols_it_with_a_token_from_standard_input() {
    let world = World::start().await;
    let node = world.created_node("gpu-01").await;
    let mut machine = Machine { root: tempfile::tempdir().unwrap(), script: fetched(&world).await };
    let args = ["--node", node.id.as_str(), "--hostname", "gpu-01"];

    let (done, said) = machine.install(&args, "");
    assert!(!done && said.contains("no token on standard input"), "{said}");
    let (done, said) = machine.install(&args, &node.token);
    assert!(!done && said.contains("has no agent for"), "{said}");
    offer(&world, "0.0.1");
    machine.script = fetched(&world).await;
    let (done, said) = machine.install(&args, "gpuaas_nbt_guessed");
    assert!(!done && said.contains("enrolment failed"), "{said}");
    assert_eq!(world.node_state(&node.id).await, "bootstrap_issued");

    let (done, said) = machine.install(&args, &node.token);
    assert!(done && said.contains(&node.id) && !said.contains(&node.token), "{said}");
    assert_eq!(world.node_state(&node.id).await, "enrolling");
    assert_eq!(mode(&machine.path("var/lib/gpuaas-agent")), 0o700);
    assert_eq!(mode(&machine.path("usr/local/lib/gpuaas-agent/gpuaas-agent")), 0o755);
    let unit = std::fs::read_to_string(machine.path("etc/systemd/system/gpuaas-agent.service")).unwrap();
    assert!(unit.starts_with("[Unit]\n") && unit.ends_with("WantedBy=multi-user.target\n"), "{unit}");
    // As an operator calls it, by its name.
    let doctor = command(machine.path("usr/local/bin/gpuaas-agent"))
        .arg("--config")
        .arg(machine.path("etc/gpuaas-agent/agent.toml"))
        .arg("doctor")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(said.contains("responds and trusts this node"), "{said}");

    // Once more, with a repair token: the same place, another certificate.
    let path = format!("/api/v1/platform/nodes/{}/repair-token", node.id);
    let repair = world.admin.post(&path, json!({})).await.expect(201);
    let token = repair["token"].as_str().unwrap();
    let (done, said) = machine.install(&[&args[..], &["--repair"]].concat(), token);
    assert!(done && !said.contains(token), "{said}");
}

#[tokio::test]
async fn a_token_comes_with_what_keeps_the_machine_from_joining() {
    let world = World::start().await;
    let region = world.region().await;
    let create = async |hostname: &str, simulated: bool| {
        let body = json!({ "hostname": hostname, "region": region, "simulated": simulated });
        world.admin.post("/api/v1/platform/nodes", body).await.expect(201)
    };
    let told = |issued: &serde_json::Value| -> Vec<(String, String)> {
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        let warnings = issued["warnings"].as_array().unwrap().iter();
        warnings.map(|warning| (text(&warning["code"]), text(&warning["setting"]))).collect()
    };
    let loopback =
        ["server.public_url", "node_gateway.url"].map(|s| ("address_is_loopback".to_owned(), s.to_owned()));
    let made = create("gpu-01", false).await;
    let missing = ("agent_program_missing".to_owned(), "fleet.programs_dir".to_owned());
    assert_eq!(told(&made["bootstrap"]), [[missing].as_slice(), &loopback].concat());
    for warning in made["bootstrap"]["warnings"].as_array().unwrap() {
        assert!(
            warning["message"].is_string() && warning["suggestion"].as_str().unwrap().len() > 20,
            "{warning}"
        );
    }
    offer(&world, "0.0.1");
    let again = format!("/api/v1/platform/nodes/{}/bootstrap-token", made["node"]["id"].as_str().unwrap());
    assert_eq!(told(&world.admin.post(&again, json!({})).await.expect(201)), loopback);
    assert_eq!(told(&create("gpu-02", true).await["bootstrap"]), []);
}
