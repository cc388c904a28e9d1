//! Whose shell a terminal gets on a real machine, and how it is started.

use std::{path::Path, sync::Arc};

use kernel::ids::AllocationId;
use node_agent::{
    config::{Config, Programs, Roots},
    drivers::hypervisor::{FileLeases, Lease, Leases as _, Stage},
    session::Streams as _,
    terminals::{HostShells, NO_SHELL, NO_SUCH_OWNER, NOT_SUPPORTED, Terminals, UNAVAILABLE},
};
use node_proto::{
    catalog::{
        DeprovisionUserInput, DeprovisionedUser, ProvisionUserInput, ProvisionedUser, VmProvisionInput,
    },
    grant::Owner,
};
use node_terminal::{Shell, Shells as _};
use node_tunnel::Refusal;
use serde_json::{Value, json};

use super::{
    eventually,
    machine::Machine,
    real_host::{Request, USER, deprovision, done, unprivileged},
    terminal_kit::{Terminal, grant_of, tunnel},
};

pub(super) fn owner(number: u128) -> AllocationId {
    uuid::Uuid::from_u128(number).into()
}

/// A made-up machine, as far as shells look at it.
pub(super) struct Host {
    pub(super) dir: tempfile::TempDir,
    pub(super) config: Config,
}

impl Host {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir_all(root.join("etc")).unwrap();
        let runuser = dir.path().join("runuser");
        std::fs::write(&runuser, "").unwrap();
        let config = Config {
            state_dir: dir.path().join("state"),
            roots: Roots::below(&root),
            programs: Programs { runuser: Some(runuser), ..Programs::default() },
            ..Config::default()
        };
        let host = Self { dir, config };
        host.passwd("root:x:0:0:root:/root:/bin/bash\n");
        host
    }

    pub(super) fn passwd(&self, lines: &str) {
        std::fs::write(self.config.roots.root.join("etc/passwd"), lines).unwrap();
    }

    fn record(&self, username: &str, record: &Value) {
        let dir = self.config.state_dir.join("host");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join(format!("{username}.json")), record.to_string()).unwrap();
    }

    pub(super) fn account(&self, username: &str, id: u32, owner: AllocationId) {
        self.record(
            username,
            &json!({ "username": username, "uid": id, "gid": id, "owner": owner.to_string() }),
        );
    }

    async fn shell_of(&self, owner: Owner) -> Result<Shell, Refusal> {
        HostShells::new(&self.config).shell(&grant_of(owner)).await
    }

    async fn shell(&self, allocation_id: AllocationId) -> Result<Shell, Refusal> {
        self.shell_of(Owner::Allocation { allocation_id }).await
    }

    async fn refused(&self, owner: AllocationId) -> Refusal {
        self.shell(owner).await.unwrap_err()
    }
}

#[tokio::test]
async fn an_owner_gets_the_login_shell_of_its_account_and_nobody_elses() {
    let host = Host::new();
    host.passwd("alice:x:20001:20001::/home/alice:/bin/bash\nbob:x:20002:20002::/home/bob:/bin/sh\n");
    host.account("alice", 20_001, owner(1));
    host.account("bob", 20_002, owner(2));
    let shell = host.shell(owner(2)).await.unwrap();
    assert_eq!(shell.program, Path::new("/bin/sh"));
    assert_eq!(shell.args[3], host.dir.path().join("runuser"));
    assert_eq!(shell.args[4..], ["--login", "--whitelist-environment=GPUAAS_TERMINAL,LANG", "--", "bob"]);
    assert_eq!(shell.terminal_owner, Some(20_002));
    assert_eq!(shell.env, [("PATH".to_owned(), "/usr/sbin:/usr/bin:/sbin:/bin".to_owned())]);
    assert_eq!(shell.cwd, Path::new("/"));
    assert_eq!(host.refused(owner(3)).await, NO_SUCH_OWNER);
    assert_eq!(host.shell_of(Owner::Node).await.unwrap_err(), NOT_SUPPORTED);
}

#[tokio::test]
async fn an_account_that_is_removed_or_not_as_it_was_made_gets_no_shell() {
    let host = Host::new();
    host.account("alice", 20_001, owner(1));
    assert_eq!(host.refused(owner(1)).await, NO_SUCH_OWNER, "the machine has no such account");
    for line in ["alice:x:0:20001:", "alice:x:20001:0:", "alice:x:20002:20001:"] {
        host.passwd(&format!("{line}:/home/alice:/bin/bash\nalice:x:20001:20001::/home/alice:/bin/bash\n"));
        assert_eq!(host.refused(owner(1)).await, NO_SUCH_OWNER, "{line}");
    }
    host.passwd("alice:x:20001:20001::/home/alice:/bin/bash\n");
    assert!(host.shell(owner(1)).await.is_ok());
    let mut removing = json!({ "username": "alice", "uid": 20_001, "gid": 20_001, "removing": true });
    removing["owner"] = json!(owner(1).to_string());
    host.record("alice", &removing);
    assert_eq!(host.refused(owner(1)).await, NO_SUCH_OWNER, "it is being removed");
}

#[tokio::test]
async fn records_that_no_allocation_can_have_are_never_run() {
    for (username, id) in [("root", 0), ("daemon", 1), ("-c", 20_001), ("nobody", 65_534), ("a b", 20_001)] {
        let host = Host::new();
        host.passwd(&format!("{username}:x:{id}:{id}::/:/bin/bash\n"));
        host.account(username, id, owner(1));
        assert_eq!(host.refused(owner(1)).await, UNAVAILABLE, "{username}");
    }
    let host = Host::new();
    host.record("alice", &json!("damaged"));
    assert_eq!(host.refused(owner(1)).await, UNAVAILABLE);
}

/// A slice that is there.
pub(super) fn lease(owner: AllocationId) -> Lease {
    let wanted = VmProvisionInput {
        owner: owner.to_string(),
        slots: Vec::new(),
        vcpus: 1,
        memory_mib: 1024,
        image: "debian".to_owned(),
        username: "alice".to_owned(),
        authorized_keys: Vec::new(),
    };
    Lease { stage: Stage::Ready, wanted }
}

#[tokio::test]
async fn slices_have_no_terminal_yet_and_without_runuser_nobody_has() {
    let mut host = Host::new();
    FileLeases::new(&host.config.state_dir).write(&lease(owner(1))).unwrap();
    assert_eq!(host.refused(owner(1)).await, NOT_SUPPORTED);
    host.passwd("bob:x:20002:20002::/home/bob:/bin/sh\n");
    host.account("bob", 20_002, owner(2));
    assert!(host.shell(owner(2)).await.is_ok());
    for runuser in [None, Some(host.dir.path().join("absent"))] {
        host.config.programs.runuser = runuser;
        assert_eq!(host.refused(owner(2)).await, NO_SHELL);
    }
}

/// The owner of the terminal inside the machine.
const TENANT: u128 = 0xA11;

/// Runs inside the machine: what each command prints in a terminal of the tenant.
pub fn inside(commands: &[String]) -> Value {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let printed = runtime.block_on(async {
        let terminals = Arc::new(Terminals::new(Arc::new(HostShells::new(&Config::default()))));
        let grant = grant_of(Owner::Allocation { allocation_id: owner(TENANT) });
        let tunnel = tunnel(grant.node_id, terminals.clone()).await;
        let mut terminal = Terminal::open(&tunnel, &grant).await.unwrap();
        terminal.read(|text| text.contains("$ ").then_some(())).await;
        assert!(!terminal.text.contains("no job control"), "{}", terminal.text);
        let mut printed = Vec::new();
        for command in commands {
            printed.push(terminal.run(command).await);
        }
        // A program in the foreground is interrupted by a key.
        terminal.text.clear();
        terminal.type_text("sh -c 'echo sta\"\"rted; exec sleep 1000'\n").await;
        terminal.read(|text| text.contains("started").then_some(())).await;
        terminal.text.clear();
        terminal.type_text("\u{3}").await;
        terminal.read(|text| text.contains("$ ").then_some(())).await;
        assert_eq!(terminal.run("echo interrupted with $?").await.0, "interrupted with 130");
        assert_eq!(terminals.count(), 1);
        terminals.end_owner(&owner(TENANT).to_string()).await;
        assert_eq!(terminals.count(), 0);
        printed
    });
    serde_json::to_value(printed).unwrap()
}

#[test]
fn a_terminal_is_a_login_session_of_the_accounts_user() {
    let machine = Machine::start();
    let key = machine.key("key");
    let tenant = owner(TENANT).to_string();
    machine.sh("mknod -m 660 /dev/nvidia0 c 195 0; chgrp video /dev/nvidia0");
    let input = ProvisionUserInput { owner: tenant.clone(), ..unprivileged(&[&key]) };
    let _: ProvisionedUser = done(&machine, Request::Provision(input));
    let expected = [
        ("id -un; id -u; id -Gn", "tenant\n20017\ntenant video"),
        ("pwd; echo $HOME $USER $SHELL", "/home/tenant\n/home/tenant tenant /bin/bash"),
        ("shopt -q login_shell && echo login", "login"),
        ("ulimit -n; ulimit -u", "512\n300"),
        ("tty | cut -d/ -f3; echo $TERM $LANG", "pts\nxterm-256color C.UTF-8"),
        ("echo to-the-terminal > $(tty); echo again > /dev/stderr", "to-the-terminal\nagain"),
        ("umask; cat /proc/self/oom_score_adj", "0022\n0"),
        ("touch mine && stat -c %U mine; touch /etc/theirs 2>/dev/null || echo refused", "tenant\nrefused"),
        ("cat /etc/shadow 2>/dev/null || sudo -n true 2>/dev/null || echo no root", "no root"),
        (
            "(echo 0 > /sys/fs/cgroup/cgroup.procs) 2>/dev/null || echo stays in its group",
            "stays in its group",
        ),
        ("sleep 1000 & true", ""),
        ("env -i setsid -f sleep 1000", ""),
        ("(trap '' HUP; setsid -f sleep 1000); setsid nohup sleep 1000 >/dev/null 2>&1 & true", ""),
    ];
    let commands = expected.iter().map(|(command, _)| (*command).to_owned()).collect();
    let printed: Vec<(String, i32)> = done(&machine, Request::Terminal(commands));
    for ((command, text), (printed, status)) in expected.iter().zip(printed) {
        if text.is_empty() {
            continue;
        }
        assert_eq!((printed.as_str(), status), (*text, 0), "{command}");
    }
    eventually("no process of the user is left", || {
        machine.sh("grep -lE '^Uid:.20017' /proc/[0-9]*/status | wc -l") == "0"
    });
    let Request::Deprovision(leave) = deprovision() else { unreachable!() };
    let leave = DeprovisionUserInput { owner: tenant, ..leave };
    let _: DeprovisionedUser = done(&machine, Request::Deprovision(leave));
    assert!(machine.ssh(USER, &key, "true").is_err());
}
