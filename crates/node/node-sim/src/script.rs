//! What goes wrong exactly, on which node, with which task: rules instead of chance, for tests that drive every
//! step into every failure. Rules stand in the plan, in a file that may change while the nodes run, or are added
//! by the test itself; a rule holds for every task that begins after it is there.

use std::{
    collections::BTreeMap,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};

use node_proto::{TaskType, contract::FailureCode};
use serde::Deserialize;
use tokio::time::Instant;

/// How long a node stays offline when the rule does not say.
const OFFLINE_MS: u64 = 5_000;
const LARGEST_FILE_BYTES: u64 = 1024 * 1024;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Does {
    /// The task ends there, with `code` and `message`. What was done before stays.
    #[default]
    Fail,
    /// The task stands still, for `for_ms` or for ever; then it goes on.
    Hang,
    /// The agent dies there, and comes back after `for_ms` or the usual time.
    Crash,
    /// The node's network is down from there on, for `for_ms` or 5 s. Without a task: as long as the rule is there.
    Offline,
    /// The task is done, and its result is nonsense.
    WrongResult,
    /// The node says in each report that it has the fault whose code is the message, as long as the rule is there.
    Sick,
}

/// One thing that goes wrong.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rule {
    /// A name, or the beginning of names followed by `*`.
    pub hostname: String,
    /// The kind of task by its name, such as `slice.vm_provision`; any when absent.
    pub task: Option<String>,
    /// Only the nth such task on the node since the rule is there, from 1; every one when absent.
    pub nth: Option<u32>,
    /// `before` anything is done, `after` everything was, or the name of a phase: all before it was done.
    pub at: String,
    pub does: Does,
    pub code: FailureCode,
    pub message: String,
    pub for_ms: Option<u64>,
}

impl Default for Rule {
    fn default() -> Self {
        Self {
            hostname: "*".to_owned(),
            task: None,
            nth: None,
            at: "before".to_owned(),
            does: Does::Fail,
            code: FailureCode::Driver,
            message: "as the script says".to_owned(),
            for_ms: None,
        }
    }
}

impl Rule {
    fn fits_node(&self, hostname: &str) -> bool {
        match self.hostname.strip_suffix('*') {
            Some(beginning) => hostname.starts_with(beginning),
            None => hostname == self.hostname,
        }
    }

    /// The network of the node is down as long as the rule is there.
    fn is_outage(&self) -> bool {
        self.does == Does::Offline && self.task.is_none()
    }

    /// It holds as long as it is there, whatever the node is doing.
    fn is_condition(&self) -> bool {
        self.is_outage() || self.does == Does::Sick
    }

    pub fn check(&self) -> Result<(), String> {
        let kinds: Vec<TaskType> = match &self.task {
            None => TaskType::ALL.to_vec(),
            Some(name) => vec![TaskType::parse(name).ok_or_else(|| format!("there is no task {name:?}"))?],
        };
        let known = |kind: &TaskType| kind.phases().contains(&self.at.as_str());
        if !matches!(self.at.as_str(), "before" | "after") && !kinds.iter().any(known) {
            return Err(format!("{:?} is not before, after or a phase of the task", self.at));
        }
        if self.nth == Some(0) {
            return Err("the first is number 1".to_owned());
        }
        Ok(())
    }

    /// The phase before which it happens; one past the last for `after`. None for `before`, or when the kind has
    /// no such phase.
    pub fn phase(&self, kind: TaskType) -> Option<usize> {
        match self.at.as_str() {
            "after" => Some(kind.phases().len()),
            at => kind.phases().iter().position(|phase| *phase == at),
        }
    }

    pub fn lasts(&self) -> Option<Duration> {
        self.for_ms.map(Duration::from_millis)
    }
}

#[derive(Debug)]
struct Entry {
    rule: Rule,
    from_file: bool,
    /// By node: how many tasks it has fitted.
    seen: BTreeMap<String, u32>,
}

#[derive(Debug, Default)]
struct Rules {
    file: Option<PathBuf>,
    /// Which state of the file was read last.
    read: Option<(SystemTime, u64, u64)>,
    entries: Vec<Entry>,
}

#[derive(Debug, Default)]
struct Shared {
    /// False as long as there never was a rule or a file: most runs have none.
    used: AtomicBool,
    rules: Mutex<Rules>,
}

/// All rules. Clones are the same script.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "Vec<Rule>")]
pub struct Script(Arc<Shared>);

impl From<Vec<Rule>> for Script {
    fn from(rules: Vec<Rule>) -> Self {
        let script = Self::default();
        rules.into_iter().for_each(|rule| script.add(rule));
        script
    }
}

impl PartialEq for Script {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.rules() == other.rules()
    }
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Written {
    script: Vec<Rule>,
}

impl Script {
    /// From now on.
    pub fn add(&self, rule: Rule) {
        self.lock().entries.push(Entry { rule, from_file: false, seen: BTreeMap::new() });
        self.0.used.store(true, Ordering::Relaxed);
    }

    pub fn clear(&self) {
        self.lock().entries.clear();
    }

    pub fn rules(&self) -> Vec<Rule> {
        self.lock().entries.iter().map(|entry| entry.rule.clone()).collect()
    }

    pub fn check(&self) -> Result<(), String> {
        self.rules().iter().try_for_each(Rule::check)
    }

    /// Also the rules in this file (`[[script]]` in TOML), whatever they are at the time. One that is not there
    /// has none.
    pub fn watch(&self, path: &Path) {
        self.lock().file = Some(path.to_owned());
        self.0.used.store(true, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Rules> {
        self.0.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// With the file as it is now.
    fn current(&self) -> MutexGuard<'_, Rules> {
        let mut rules = self.lock();
        if let Some(path) = rules.file.clone() {
            let state = std::fs::metadata(&path)
                .and_then(|meta| Ok((meta.modified()?, meta.len(), meta.ino())))
                .ok()
                .filter(|(_, bytes, _)| *bytes <= LARGEST_FILE_BYTES);
            if state != rules.read {
                rules.read = state;
                match read(&path, state.is_some()) {
                    Ok(written) => rules.replace(written),
                    Err(problem) => {
                        tracing::error!(path = %path.display(), problem, "the script is not valid")
                    }
                }
            }
        }
        rules
    }
}

impl Rules {
    /// Rules of the file that were there before go on counting.
    fn replace(&mut self, written: Vec<Rule>) {
        let (mut before, kept) =
            std::mem::take(&mut self.entries).into_iter().partition(|entry| entry.from_file);
        self.entries = kept;
        for rule in written {
            let known: Option<usize> = before.iter().position(|entry: &Entry| entry.rule == rule);
            let seen = known.map(|place| before.swap_remove(place).seen).unwrap_or_default();
            self.entries.push(Entry { rule, from_file: true, seen });
        }
    }
}

fn read(path: &Path, there: bool) -> Result<Vec<Rule>, String> {
    if !there {
        return Ok(Vec::new());
    }
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let written: Written = toml::from_str(&text).map_err(|error| error.to_string())?;
    written.script.iter().try_for_each(Rule::check)?;
    Ok(written.script)
}

/// The script as one node plays it, and whether its network is down.
#[derive(Debug)]
pub struct NodeScript {
    script: Script,
    hostname: String,
    down_until: Mutex<Option<Instant>>,
}

impl NodeScript {
    pub fn new(script: Script, hostname: &str) -> Self {
        Self { script, hostname: hostname.to_owned(), down_until: Mutex::default() }
    }

    /// A task of this kind begins: what goes wrong with it, if anything. The first rule that fits counts.
    pub fn begins(&self, kind: TaskType) -> Option<Rule> {
        if !self.script.0.used.load(Ordering::Relaxed) {
            return None;
        }
        let mut rules = self.script.current();
        let mut happens = None;
        for Entry { rule, seen, .. } in &mut rules.entries {
            let fits = rule.task.as_deref().is_none_or(|name| name == kind.name());
            let comes = rule.at == "before" || rule.phase(kind).is_some();
            if !fits || !comes || rule.is_condition() || !rule.fits_node(&self.hostname) {
                continue;
            }
            let times = seen.entry(self.hostname.clone()).or_default();
            *times = times.saturating_add(1);
            if happens.is_none() && rule.nth.is_none_or(|nth| nth == *times) {
                happens = Some(rule.clone());
            }
        }
        happens
    }

    pub fn go_offline(&self, rule: &Rule) {
        let lasts = rule.lasts().unwrap_or(Duration::from_millis(OFFLINE_MS));
        *self.down_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + lasts);
    }

    /// The codes of the faults that the node has.
    pub fn faults(&self) -> Vec<String> {
        if !self.script.0.used.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let rules = self.script.current();
        let has = rules.entries.iter().map(|entry| &entry.rule);
        let has = has.filter(|rule| rule.does == Does::Sick && rule.fits_node(&self.hostname));
        has.map(|rule| rule.message.clone()).collect()
    }

    pub fn offline(&self) -> bool {
        if !self.script.0.used.load(Ordering::Relaxed) {
            return false;
        }
        let until = *self.down_until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() < until)
            || self
                .script
                .current()
                .entries
                .iter()
                .any(|entry| entry.rule.is_outage() && entry.rule.fits_node(&self.hostname))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nth_task_of_a_kind_on_a_node_meets_its_rule() {
        let rule = Rule {
            hostname: "sim-*".to_owned(),
            task: Some("slice.vm_provision".to_owned()),
            nth: Some(2),
            ..Rule::default()
        };
        let script = Script::from(vec![rule.clone()]);
        let [one, two] = ["sim-1", "sim-2"].map(|name| NodeScript::new(script.clone(), name));
        let provision = || one.begins(TaskType::VmProvision);
        assert_eq!((provision(), one.begins(TaskType::VmRelease)), (None, None));
        assert_eq!((two.begins(TaskType::VmProvision), provision(), provision()), (None, Some(rule), None));
        assert_eq!(NodeScript::new(script.clone(), "other").begins(TaskType::VmProvision), None);
        script.add(Rule { hostname: "sim-2".to_owned(), does: Does::Offline, ..Rule::default() });
        assert!(two.offline() && !one.offline());
        script.add(Rule { does: Does::Sick, message: "xid.79".to_owned(), ..Rule::default() });
        assert_eq!((one.faults(), provision()), (vec!["xid.79".to_owned()], None));
        script.clear();
        assert!(!two.offline() && one.faults().is_empty());
    }

    #[test]
    fn a_file_is_followed_and_its_rules_go_on_counting() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("script.toml");
        let script = Script::default();
        script.watch(&path);
        let node = NodeScript::new(script, "n");
        assert_eq!(node.begins(TaskType::Drain), None);
        let second = "[[script]]\ntask = 'node.drain'\nnth = 2\ncode = 'timeout'\nat = 'mark'\n";
        std::fs::write(&path, second).unwrap();
        assert_eq!(node.begins(TaskType::Drain), None);
        std::fs::write(&path, format!("{second}[[script]]\nhostname = 'm'\ndoes = 'offline'\n")).unwrap();
        assert_eq!(node.begins(TaskType::Drain).unwrap().code, FailureCode::Timeout);
        assert!(!node.offline());
        // What cannot be read changes nothing.
        std::fs::write(&path, "[[script]]\ntask = 'shell.run'\n").unwrap();
        assert_eq!(node.begins(TaskType::Drain), None);
        std::fs::write(&path, "[[script]]\nhostname = 'n'\ndoes = 'offline'\n").unwrap();
        assert!(node.offline());
        std::fs::remove_file(&path).unwrap();
        assert!(!node.offline());
    }

    #[test]
    fn nonsense_is_refused() {
        let good =
            Rule { task: Some("slice.vm_release".to_owned()), at: "disk".to_owned(), ..Rule::default() };
        assert_eq!((good.check(), good.phase(TaskType::VmRelease)), (Ok(()), Some(1)));
        for bad in [
            Rule { task: Some("shell.run".to_owned()), ..Rule::default() },
            Rule { at: "seed".to_owned(), ..good.clone() },
            Rule { nth: Some(0), ..good },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
