//! `gpuaas recordings` when what is stored changes while it is read, against a server that the test plays.

mod storage;

use std::{os::unix::fs::PermissionsExt, path::Path, time::Duration};

use storage::{ALLOCATION, SESSION, Stored, person};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use crate::kit::Gpuaas;

const TIME_LIMIT: Duration = Duration::from_secs(60);
const REPLAY: [&str; 4] = ["recordings", "replay", ALLOCATION, SESSION];

fn three() -> Stored {
    Stored::from_outputs(&[(0, "one\r\n"), (1, "two\r\n"), (2, "three\r\n")])
}

fn cast(file: &Path) -> [&str; 6] {
    ["recordings", "download", ALLOCATION, SESSION, "--cast", file.to_str().unwrap()]
}

fn names(directory: &Path) -> Vec<String> {
    let names = std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().file_name());
    names.map(|name| name.into_string().unwrap()).collect()
}

#[tokio::test]
async fn a_cast_replaces_a_file_as_a_whole_and_says_what_was_verified() {
    let directory = tempfile::tempdir().unwrap();
    let (file, link) = (directory.path().join("session.cast"), directory.path().join("link"));
    let ran = person(three()).await.run(&cast(&file)).await;
    assert!(ran.err.contains("Written to") && ran.err.contains("Verified: "), "{ran:?}");
    ran.ok();
    let written = std::fs::read_to_string(&file).unwrap();
    assert!(written.starts_with("{\"version\":2") && written.contains("three"), "{written}");

    // A link stays one, and a mode too; a recording that is not sealed is told as such.
    std::fs::write(&file, "before").unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    std::os::unix::fs::symlink("session.cast", &link).unwrap();
    let ran = person(Stored { seal: None, is_sealed: false, ..three() }).await.run(&cast(&link)).await;
    assert!(ran.err.contains("not sealed"), "{ran:?}");
    ran.ok();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), written);
    assert!(link.is_symlink());
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

    // What cannot be renamed is written as it is.
    person(three()).await.run(&cast(Path::new("/dev/null"))).await.ok();
    assert!(!Path::new("/dev/null").is_file());
    assert_eq!(names(directory.path()).len(), 2);
}

#[tokio::test]
async fn what_is_changed_after_it_was_verified_is_not_written() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("session.cast");
    let mut stored = three();
    let mut later = stored.chunks.clone();
    later[1] = String::from_utf8(later[1].clone()).unwrap().replace("two", "TWO").into_bytes();
    stored.chunks_later = Some(later);
    std::fs::write(&file, "before").unwrap();
    let said = person(stored.clone()).await.run(&cast(&file)).await.fails(1);
    assert!(said.contains("chunk_edited"), "{said}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "before");
    std::fs::remove_file(&file).unwrap();
    person(stored.clone()).await.run(&cast(&file)).await.fails(1);
    assert!(names(directory.path()).is_empty(), "{:?}", names(directory.path()));

    let mut unverified = cast(&file).to_vec();
    unverified.push("--unverified");
    let ran = person(stored).await.run(&unverified).await;
    assert!(ran.err.contains("What was written is not verified"), "{ran:?}");
    ran.ok();
    assert!(std::fs::read_to_string(&file).unwrap().contains("TWO"));
}

#[tokio::test]
async fn a_sealed_recording_without_its_seal_or_its_last_chunks_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (file, dir) = (directory.path().join("session.cast"), directory.path().join("chunks"));
    let without = |chunks: usize, is_sealed| {
        let mut stored = Stored { seal: None, is_sealed, ..three() };
        stored.chunks.truncate(chunks);
        stored
    };
    let cases = [
        (without(3, true), vec!["seal_missing"]),
        (without(1, true), vec!["seal_missing", "chunks 1 to 2 are missing"]),
        (without(0, true), vec!["seal_missing", "chunks 0 to 2 are missing"]),
        // It is not sealed, and yet more of it was stored.
        (without(2, false), vec!["chunk_missing", "chunk 2 is missing"]),
    ];
    for (stored, expected) in cases {
        let person = person(stored).await;
        let written = ["recordings", "download", ALLOCATION, SESSION, "--dir", dir.to_str().unwrap()];
        for arguments in [&REPLAY[..], &cast(&file), &written] {
            let said = person.run(arguments).await.fails(1);
            assert!(expected.iter().all(|part| said.contains(part)), "{arguments:?}: {said}");
        }
        assert_eq!(names(directory.path()), ["chunks"], "chunks are evidence, half a cast is none");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}

/// Replays on a terminal, and types Ctrl-C when something is shown. The exit code, and what was shown.
async fn replay_on_terminal(person: &Gpuaas, more: &[&str], stop_at: Option<&str>) -> (Option<i32>, String) {
    let (mut pty, terminal) = pty_process::open().unwrap();
    pty.resize(pty_process::Size::new(30, 100)).unwrap();
    let mut child = person.start_on(&terminal, &[&REPLAY, more].concat(), None);
    drop(terminal);
    let (mut shown, mut is_stopped) = (Vec::new(), false);
    let read = async {
        // A terminal that nobody holds any more is an error.
        while let Ok(1..) = pty.read_buf(&mut shown).await {
            let text = String::from_utf8_lossy(&shown);
            if !is_stopped && stop_at.is_some_and(|stop| text.contains(stop)) {
                is_stopped = true;
                pty.write_all(b"\x03").await.unwrap();
            }
        }
    };
    timeout(TIME_LIMIT, read).await.expect("the replay ends in time");
    let status = timeout(TIME_LIMIT, child.wait()).await.expect("the program ends in time").unwrap();
    (status.code(), String::from_utf8(shown).unwrap())
}

#[track_caller]
fn assert_restored(shown: &str, last_drawn: &str, said: &str) {
    let after = shown.rsplit_once(last_drawn).unwrap_or_else(|| panic!("{shown:?}")).1;
    let (after, _) = after.split_once(said).unwrap_or_else(|| panic!("{shown:?}"));
    for reset in [
        "\x0f",
        "\x1b(B",
        "\x1b[r",
        "\x1b[4l",
        "\x1b[?5l",
        "\x1b[?6l",
        "\x1b[?7h",
        "\x1b[?2026l",
        "\x1b[0 q",
        "\x1b[?25h",
        "\x1b[0m",
        "\x1b[?1049l",
    ] {
        assert!(after.contains(reset), "{reset:?} is not in {after:?}");
    }
}

#[tokio::test]
async fn a_replay_gives_the_screen_back_however_it_ends() {
    let drawn = "\x1b[?1049h\x1b[?25l\x1b[2;5r\x0e\x1b(0\x1b[4h\x1b[?5h\x1b[?6h\x1b[?7l\x1b[5 qfirst";
    let stored = Stored::from_outputs(&[(0, drawn), (3600, "second"), (7200, "third")]);
    let (code, shown) = replay_on_terminal(&person(stored.clone()).await, &["--idle-limit=0"], None).await;
    assert_eq!(code, Some(0), "{shown}");
    assert_restored(&shown, "third", "Verified: ");

    let mut later = stored.chunks.clone();
    later[1] = b"not a chunk".to_vec();
    let changed = Stored { chunks_later: Some(later), ..stored.clone() };
    let (code, shown) = replay_on_terminal(&person(changed).await, &["--idle-limit=0"], None).await;
    assert_eq!(code, Some(1), "{shown}");
    assert_restored(&shown, "first", "error: ");

    let waits = ["--idle-limit=86400", "--speed=0.01"];
    let (code, shown) = replay_on_terminal(&person(stored).await, &waits, Some("first")).await;
    assert_eq!(code, Some(130), "{shown}");
    assert_restored(&shown, "first", "the replay was stopped");

    // Where there is no screen, there is nothing but what was recorded.
    let replay = [&REPLAY[..], &["--idle-limit=0"]].concat();
    assert_eq!(person(three()).await.run(&replay).await.ok(), "one\r\ntwo\r\nthree\r\n");
}
