//! `gpuaas recordings`, as a person types it.

use std::{
    path::{Path, PathBuf},
    process::Output,
    time::Duration,
};

use serde_json::Value;
use testkit::{Tenant, World, program};

use super::{
    client::{LATER, Terminal},
    slice,
};
use crate::tools;

struct Person<'a> {
    world: &'a World,
    tenant: &'a Tenant,
    home: tempfile::TempDir,
}

impl Person<'_> {
    async fn run(&self, arguments: &[&str]) -> Output {
        let mut command = tools::command(program("gpuaas"));
        command
            .env("XDG_CONFIG_HOME", self.home.path())
            .env("XDG_CACHE_HOME", self.home.path().join("cache"))
            .env("GPUAAS_SERVER", &self.world.server.base)
            .env("GPUAAS_TOKEN", self.tenant.api().token.clone().unwrap())
            .env("GPUAAS_PROJECT", &self.tenant.project)
            .current_dir(self.home.path())
            .arg("recordings")
            .args(arguments);
        tools::run(command, LATER).await
    }

    async fn ok(&self, arguments: &[&str]) -> Vec<u8> {
        let ran = self.run(arguments).await;
        assert!(ran.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
        ran.stdout
    }

    async fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_slice(&self.ok(&[arguments, &["-o", "json"]].concat()).await).unwrap()
    }

    /// What a recording that is not right is refused with.
    async fn fault(&self, arguments: &[&str]) -> String {
        let ran = self.run(arguments).await;
        assert_eq!(ran.status.code(), Some(1), "{arguments:?}");
        String::from_utf8(ran.stderr).unwrap()
    }
}

fn chunk(dir: &Path, index: usize) -> PathBuf {
    dir.join(format!("{index:08}"))
}

async fn assert_faults_are_named(person: &Person<'_>, dir: &Path, key: &str) {
    let verify = ["verify", dir.to_str().unwrap(), "--key", key];
    let second = std::fs::read(chunk(dir, 1)).unwrap();
    let mut edited = second.clone();
    let at = edited.len() - 10;
    edited[at] ^= 1;
    std::fs::write(chunk(dir, 1), edited).unwrap();
    let said = person.fault(&verify).await;
    assert!(said.contains("chunk_edited") && said.contains("chunk 1 was edited"), "{said}");
    std::fs::remove_file(chunk(dir, 1)).unwrap();
    assert!(person.fault(&verify).await.contains("chunk 1 is missing"));
    std::fs::write(chunk(dir, 1), second).unwrap();
    let other = "ab".repeat(32);
    let said = person.fault(&["verify", dir.to_str().unwrap(), "--key", &other]).await;
    assert!(said.contains("seal_key_unknown"), "{said}");
    std::fs::remove_file(dir.join("seal")).unwrap();
    assert!(person.fault(&verify).await.contains("recording_not_sealed"));
}

#[tokio::test]
async fn a_recording_is_listed_replayed_downloaded_and_verified_offline() {
    let world = World::start_simulated().await;
    world.db.lift_rate_limits().await;
    let _nodes = world.simulated(&[("h200-8", 1)]).await;
    let ann = world.tenant("ann").await;
    let id = ann.active(slice(1)).await;
    let mut terminal = Terminal::open(&world.server, &ann, &id).await;
    terminal.run("seq 1 60000; sleep 1; echo ä").await;
    terminal.type_in("exit\n").await;
    assert_eq!(terminal.until_end().await["reason"], "exited");
    let (session, id) = (terminal.session.as_str(), id.as_str());
    let person = Person { world: &world, tenant: &ann, home: tempfile::tempdir().unwrap() };

    let listed = person.json(&["list", id]).await;
    assert_eq!(listed[0]["session_id"], session, "{listed}");
    assert_eq!(person.json(&["show", id, session]).await["complete"], true);

    let began = std::time::Instant::now();
    let played = person.ok(&["replay", id, session, "--speed", "1000"]).await;
    assert_eq!(played, terminal.output);
    assert!(began.elapsed() < Duration::from_secs(30));

    let dir = person.home.path().join(session);
    person.ok(&["download", id, session]).await;
    let again = person.run(&["download", id, session]).await;
    assert!(!again.status.success(), "a directory that exists is not written over");
    let verified = person.json(&["verify", session]).await;
    assert_eq!((&verified["ok"], &verified["complete"]), (&true.into(), &true.into()), "{verified}");
    // The key is known by its id, or as a whole.
    let seal: Value = serde_json::from_slice(&std::fs::read(dir.join("seal")).unwrap()).unwrap();
    let (key, key_id) = (seal["public_key"].as_str().unwrap(), verified["key_id"].as_str().unwrap());
    person.ok(&["verify", session, "--key", key_id]).await;
    person.ok(&["verify", session, "--key", key]).await;
    assert_faults_are_named(&person, &dir, key).await;

    let cast = person.ok(&["download", id, session, "--cast", "-"]).await;
    let mut lines = cast.split(|byte| *byte == b'\n');
    let header: Value = serde_json::from_slice(lines.next().unwrap()).unwrap();
    assert_eq!((&header["version"], &header["width"]), (&2.into(), &80.into()));
    let events =
        lines.filter(|line| !line.is_empty()).map(|line| serde_json::from_slice::<Value>(line).unwrap());
    let output: String =
        events.filter(|event| event[1] == "o").map(|event| event[2].as_str().unwrap().to_owned()).collect();
    assert_eq!(output.as_bytes(), terminal.output);
}
