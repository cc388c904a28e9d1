//! Trials, passed and failed.

use std::sync::atomic::{AtomicUsize, Ordering};

use kernel::Ambient;
use node_proto::{Task, Work};

use super::*;
use crate::executor::{ProgramSource, Track};

struct Offer(Vec<u8>);

impl ProgramSource for Offer {
    fn fetch(&self, _: &str, _: u64, to: &Path) -> Done<()> {
        fs::write(to, &self.0).map_err(|error| DriverError::failed(error.to_string()))
    }
}

fn script(version: &str) -> Vec<u8> {
    format!("#!/bin/sh\necho {version}\n").into_bytes()
}

struct Place {
    dir: tempfile::TempDir,
    restarts: Arc<AtomicUsize>,
}

impl Place {
    fn new() -> Self {
        let place = Self { dir: tempfile::tempdir().unwrap(), restarts: Arc::default() };
        fs::write(place.program(), script("1.0.0")).unwrap();
        place
    }

    fn program(&self) -> PathBuf {
        self.dir.path().join("agent")
    }

    /// As when the program with this version starts.
    fn updater(&self, version: &str) -> Updater {
        let restarts = self.restarts.clone();
        let restart = Arc::new(move || {
            restarts.fetch_add(1, Ordering::Relaxed);
        });
        Updater::open(self.program(), self.dir.path(), version, restart).unwrap()
    }

    fn installed(&self) -> Vec<u8> {
        fs::read(self.program()).unwrap()
    }
}

fn input(program: &[u8], version: &str) -> SelfUpdateInput {
    let sha256 = Hex(kernel::digest::sha256(program).to_vec()).to_string();
    SelfUpdateInput { version: version.to_owned(), sha256, size_bytes: program.len() as u64 }
}

fn task() -> TaskId {
    kernel::Ambient::system().id()
}

fn job(id: TaskId, input: &SelfUpdateInput, offer: &[u8]) -> Job {
    let ambient = Ambient::system();
    let task = Task {
        task_id: id,
        node_id: ambient.id(),
        task_type: "node.self_update".to_owned(),
        params: serde_json::to_value(input).unwrap(),
        attempt: 1,
        issued_at: ambient.now(),
        expires_at: ambient.now(),
        correlation_id: ambient.uuid(),
        traceparent: None,
        signer_version: 1,
    };
    let programs = Arc::new(Offer(offer.to_vec()));
    Job { task, work: Work::SelfUpdate(input.clone()), steps: Arc::new(Track::new(ambient)), programs }
}

fn swapped(place: &Place) -> TaskId {
    let (id, new) = (task(), script("2.0.0"));
    let input = input(&new, "2.0.0");
    place.updater("1.0.0").replace(&input, &job(id, &input, &new)).unwrap();
    assert_eq!(place.installed(), new);
    assert_eq!(place.restarts.load(Ordering::Relaxed), 1);
    id
}

#[test]
fn a_program_that_is_heard_stays() {
    let place = Place::new();
    let id = swapped(&place);
    let new = place.updater("2.0.0");
    assert_eq!(new.at_start().unwrap(), AtStart::Go);
    assert!(new.on_trial());
    new.confirm();
    for _ in 0..5 {
        let again = place.updater("2.0.0");
        assert_eq!(again.at_start().unwrap(), AtStart::Go);
        assert!(!again.on_trial() && !again.rolled_back(id));
    }
}

#[test]
fn a_program_that_is_not_heard_after_two_starts_is_given_up() {
    let place = Place::new();
    let id = swapped(&place);
    assert_eq!(place.updater("2.0.0").at_start().unwrap(), AtStart::Go);
    assert_eq!(place.updater("2.0.0").at_start().unwrap(), AtStart::Go);
    assert_eq!(place.updater("2.0.0").at_start().unwrap(), AtStart::StartAgain);
    assert_eq!(place.installed(), script("1.0.0"));
    let old = place.updater("1.0.0");
    assert_eq!(old.at_start().unwrap(), AtStart::Go);
    assert!(old.rolled_back(id) && !old.rolled_back(task()));
    // And another one can be tried.
    swapped(&Place { dir: place.dir, restarts: Arc::default() });
}

#[test]
fn a_program_that_cannot_even_start_is_given_up_by_the_old_one() {
    let place = Place::new();
    let id = swapped(&place);
    assert!(!place.updater("1.0.0").guard().unwrap());
    assert!(!place.updater("1.0.0").guard().unwrap());
    assert!(place.updater("1.0.0").guard().unwrap());
    assert_eq!(place.installed(), script("1.0.0"));
    assert!(place.updater("1.0.0").rolled_back(id));
    assert!(!place.updater("1.0.0").guard().unwrap());
}

#[test]
fn a_program_that_cannot_reach_anybody_is_given_up_in_time() {
    let place = Place::new();
    let id = swapped(&place);
    let new = place.updater("2.0.0");
    new.at_start().unwrap();
    new.roll_back().unwrap();
    assert_eq!(place.installed(), script("1.0.0"));
    assert!(place.updater("1.0.0").rolled_back(id));
}

#[test]
fn a_crash_between_the_note_and_the_swap_counts_as_rolled_back() {
    let place = Place::new();
    let id = swapped(&place);
    fs::rename(place.dir.path().join("agent.previous"), place.program()).unwrap();
    let old = place.updater("1.0.0");
    assert_eq!(old.at_start().unwrap(), AtStart::Go);
    assert!(old.rolled_back(id));
}

#[test]
fn what_was_not_announced_is_never_put_in_place() {
    let place = Place::new();
    let new = script("2.0.0");
    let right = input(&new, "2.0.0");
    let wrong = [
        (right.clone(), script("6.6.6")),
        (SelfUpdateInput { size_bytes: 3, ..right.clone() }, new.clone()),
        (SelfUpdateInput { version: "3.0.0".to_owned(), ..right.clone() }, new.clone()),
        (input(b"\x7fELF garbage", "2.0.0"), b"\x7fELF garbage".to_vec()),
        (SelfUpdateInput { size_bytes: u64::MAX, ..right }, new),
    ];
    for (input, offer) in wrong {
        assert!(place.updater("1.0.0").replace(&input, &job(task(), &input, &offer)).is_err(), "{input:?}");
    }
    assert_eq!(place.installed(), script("1.0.0"));
    assert!(!place.dir.path().join("agent.new").exists());
    assert_eq!(place.restarts.load(Ordering::Relaxed), 0);
}
