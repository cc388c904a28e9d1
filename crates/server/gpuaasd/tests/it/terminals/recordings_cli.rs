//! `gpuaas recordings`, as a person types it.

use std::{path::Path, process::Output, time::Duration};

use serde_json::Value;
use testkit::{Tenant, World, program};

use super::{
    client::{LATER, Terminal},
    drawn_screen::DrawnScreen,
    recorded::{chunk, folder},
    slice,
};
use crate::tools;

pub struct Person<'a> {
    world: &'a World,
    tenant: &'a Tenant,
    home: tempfile::TempDir,
}

impl<'a> Person<'a> {
    pub fn new(world: &'a World, tenant: &'a Tenant) -> Self {
        Self { world, tenant, home: tempfile::tempdir().unwrap() }
    }

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

    pub async fn ok(&self, arguments: &[&str]) -> Vec<u8> {
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

/// A recording of another session, in the place of the one that was asked for.
async fn assert_sessions_are_compared(person: &Person<'_>, dir: &Path, key: &str) {
    let other = "term_0193b3a000007000800000000000c0de";
    let said = person.fault(&["verify", dir.to_str().unwrap(), "--key", key, "--session", other]).await;
    assert!(said.contains("seal_session_foreign"), "{said}");
    let renamed = dir.with_file_name(other);
    std::fs::rename(dir, &renamed).unwrap();
    let said = person.fault(&["verify", other, "--key", key]).await;
    assert!(said.contains("seal_session_foreign"), "{said}");
    // A name that says nothing: the session is told.
    let unnamed = dir.with_file_name("evidence");
    std::fs::rename(&renamed, &unnamed).unwrap();
    let ran = person.run(&["verify", "evidence", "--key", key]).await;
    let session = dir.file_name().unwrap().to_str().unwrap();
    assert!(ran.status.success() && String::from_utf8_lossy(&ran.stderr).contains(session));
    std::fs::rename(&unnamed, dir).unwrap();
}

/// What somebody changed in the object storage is neither played nor written, unless it is wanted all the same.
async fn assert_changed_recordings_are_refused(person: &Person<'_>, id: &str, session: &str) {
    let stored = folder(person.world, session);
    let text = std::fs::read_to_string(chunk(&stored, 1)).unwrap();
    std::fs::write(chunk(&stored, 1), text.replacen("\\r\\n1", "\\r\\n2", 1)).unwrap();
    let replay = ["replay", id, session, "--speed", "1000"];
    let cast = ["download", id, session, "--cast", "-"];
    for arguments in [&replay[..], &cast[..]] {
        let ran = person.run(arguments).await;
        assert_eq!((ran.status.code(), ran.stdout.len()), (Some(1), 0), "{arguments:?}");
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(said.contains("chunk_edited") && said.contains("--unverified"), "{said}");
        assert!(!person.ok(&[arguments, &["--unverified"]].concat()).await.is_empty());
    }
    let said = person.fault(&["download", id, session, "--dir", "changed"]).await;
    assert!(said.contains("chunk_edited"), "{said}");
    assert!(chunk(&person.home.path().join("changed"), 1).exists(), "it is evidence");
}

/// What is left of a sealed recording may be in one piece: the database knows what was there.
async fn assert_missing_parts_are_refused(person: &Person<'_>, id: &str, session: &str) {
    let stored = folder(person.world, session);
    let chunks = person.json(&["show", id, session]).await["chunks"].as_u64().unwrap();
    let last = chunk(&stored, usize::try_from(chunks).unwrap() - 1);
    let parts = [stored.join("seal"), last];
    let contents = parts.clone().map(|part| std::fs::read(part).unwrap());
    for part in &parts {
        std::fs::remove_file(part).unwrap();
    }
    let missing = format!("chunk {} is missing", chunks - 1);
    let replay = ["replay", id, session, "--speed", "1000"];
    let download = ["download", id, session, "--dir", "parts"];
    for arguments in [&replay[..], &download[..], &["download", id, session, "--cast", "parts.cast"]] {
        let said = person.fault(arguments).await;
        assert!(said.contains("seal_missing") && said.contains(&missing), "{arguments:?}: {said}");
    }
    assert!(!person.home.path().join("parts.cast").exists());
    for (part, content) in parts.iter().zip(contents) {
        std::fs::write(part, content).unwrap();
    }
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
    let person = Person::new(&world, &ann);

    let listed = person.json(&["list", id]).await;
    assert_eq!(listed[0]["session_id"], session, "{listed}");
    assert_eq!(person.json(&["show", id, session]).await["complete"], true);

    let began = std::time::Instant::now();
    let ran = person.run(&["replay", id, session, "--speed", "1000"]).await;
    assert!(String::from_utf8_lossy(&ran.stderr).contains("Verified: "), "it says that it is verified");
    let changes_keyboard = |output: &[u8]| String::from_utf8_lossy(output).contains("\u{1b}[?2004h");
    assert!(
        changes_keyboard(&terminal.output) && !changes_keyboard(&ran.stdout),
        "a shell does, a replay does not"
    );
    let drawn = |output: &[u8]| {
        let mut screen = DrawnScreen::of_client();
        screen.process(output);
        screen.picture()
    };
    assert_eq!(drawn(&ran.stdout), drawn(&terminal.output));
    assert!(began.elapsed() < Duration::from_secs(30));

    let dir = person.home.path().join(session);
    person.ok(&["download", id, session]).await;
    let again = person.run(&["download", id, session]).await;
    assert!(!again.status.success(), "a directory that exists is not written over");
    // Whoever could forge a recording could forge its key: it must come from elsewhere.
    assert!(person.fault(&["verify", session]).await.contains("--key"));
    let seal: Value = serde_json::from_slice(&std::fs::read(dir.join("seal")).unwrap()).unwrap();
    let (key, key_id) = (seal["public_key"].as_str().unwrap(), seal["key_id"].as_str().unwrap());
    // The key is known by its id, or as a whole.
    let verified = person.json(&["verify", session, "--key", key_id]).await;
    assert_eq!((&verified["ok"], &verified["complete"]), (&true.into(), &true.into()), "{verified}");
    assert_eq!(verified["session_id"], session);
    person.ok(&["verify", session, "--key", key]).await;
    assert_sessions_are_compared(&person, &dir, key).await;
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
    assert_missing_parts_are_refused(&person, id, session).await;
    assert_changed_recordings_are_refused(&person, id, session).await;
}
