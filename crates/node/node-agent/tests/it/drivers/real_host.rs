//! The host driver on a real machine in namespaces, with real accounts, real sshd and real users who do not want
//! to leave.

use node_agent::{
    config::{Programs, Roots},
    drivers::{HostDriver as _, host::RealHost},
};
use node_proto::catalog::{
    AccountLimits, AccountSpec, DeprovisionUserInput, DeprovisionedUser, InstallAuthorizedKeysInput,
    InstalledKeys, Isolation, ProvisionUserInput, ProvisionedUser,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    Noted, eventually,
    machine::{INSIDE, Key, Machine},
};

#[derive(Serialize, Deserialize)]
pub enum Request {
    Provision(ProvisionUserInput),
    Keys(InstallAuthorizedKeysInput),
    Retain(InstallAuthorizedKeysInput),
    Deprovision(DeprovisionUserInput),
    Users,
    /// What commands print in a terminal.
    Terminal(Vec<String>),
}

#[derive(Serialize, Deserialize)]
struct Call {
    request: Request,
    stop_at: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    result: Result<Value, String>,
    phases: Vec<String>,
}

/// Not a test: what runs inside the machine, where the tests below have this program do what the agent does.
#[test]
fn inside() {
    let Ok(call) = std::env::var(INSIDE) else { return };
    let call: Call = serde_json::from_str(&call).unwrap();
    let host = RealHost::new(Roots::default(), Programs::default(), "/var/lib/gpuaas-agent".as_ref());
    let steps = Noted { stop_at: call.stop_at, ..Noted::default() };
    let value = |value: Result<_, serde_json::Error>| value.unwrap();
    let result = match &call.request {
        Request::Provision(input) => {
            host.provision_user(input, &steps).map(|done| value(serde_json::to_value(done)))
        }
        Request::Keys(input) => {
            host.install_keys(input, &steps).map(|done| value(serde_json::to_value(done)))
        }
        Request::Retain(input) => {
            host.retain_keys(input, &steps).map(|done| value(serde_json::to_value(done)))
        }
        Request::Deprovision(input) => {
            host.deprovision_user(input, &steps).map(|done| value(serde_json::to_value(done)))
        }
        Request::Users => host.users().map(|users| value(serde_json::to_value(users))),
        Request::Terminal(commands) => Ok(super::terminals::inside(commands)),
    };
    let phases = steps.seen.lock().unwrap().iter().map(ToString::to_string).collect();
    let answer = Answer { result: result.map_err(|error| error.message), phases };
    println!("\nANSWER {}", serde_json::to_string(&answer).unwrap());
}

fn call(machine: &Machine, request: Request, stop_at: Option<&str>) -> Answer {
    let call = Call { request, stop_at: stop_at.map(str::to_owned) };
    let ran = machine.driver(&serde_json::to_string(&call).unwrap());
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    let answer = said.lines().find_map(|line| line.strip_prefix("ANSWER "));
    let answer = answer.unwrap_or_else(|| panic!("{said}\n{}", String::from_utf8_lossy(&ran.stderr)));
    serde_json::from_str(answer).unwrap()
}

pub fn done<T: DeserializeOwned>(machine: &Machine, request: Request) -> T {
    serde_json::from_value(call(machine, request, None).result.unwrap()).unwrap()
}

pub fn refused(machine: &Machine, request: Request) -> String {
    call(machine, request, None).result.unwrap_err()
}

const OWNER: &str = "alloc_0197";
pub const USER: &str = "tenant";
const UID: u32 = 20_017;

fn account() -> AccountSpec {
    AccountSpec { username: USER.into(), uid: UID, gid: UID }
}

fn input(keys: &[&Key]) -> ProvisionUserInput {
    ProvisionUserInput {
        account: account(),
        owner: OWNER.into(),
        shell: "/bin/bash".into(),
        authorized_keys: keys.iter().map(|key| key.public.clone()).collect(),
        limits: AccountLimits { processes: Some(300), open_files: Some(512) },
        isolation: Isolation::FullReimage,
    }
}

/// On a machine that is not installed anew after its tenant.
pub fn unprivileged(keys: &[&Key]) -> ProvisionUserInput {
    ProvisionUserInput { isolation: Isolation::UserRevoke, ..input(keys) }
}

fn provision(keys: &[&Key]) -> Request {
    Request::Provision(input(keys))
}

fn key_set(keys: &[&Key]) -> InstallAuthorizedKeysInput {
    let authorized_keys = keys.iter().map(|key| key.public.clone()).collect();
    InstallAuthorizedKeysInput { account: account(), owner: OWNER.into(), authorized_keys }
}

fn install(keys: &[&Key]) -> Request {
    Request::Keys(key_set(keys))
}

pub fn deprovision() -> Request {
    Request::Deprovision(DeprovisionUserInput { account: account(), owner: OWNER.into() })
}

/// Nothing of the user is anywhere: not one process, not one file on the whole machine, no line in an account file.
pub fn assert_gone(machine: &Machine, key: &Key) {
    let processes = machine.sh(&format!(
        "for s in /proc/[0-9]*/status; do grep -lE '^Uid:.*\\b{UID}\\b' $s 2>/dev/null; done | while read s; do grep -q '^State:.Z' $s || cat $s; done"
    ));
    assert_eq!(processes, "", "processes");
    let files = machine.sh(&format!(
        "find / \\( -path /proc -o -path /lab \\) -prune -o \\( -uid {UID} -o -gid {UID} -o -name '*{OWNER}*' \\) -print"
    ));
    assert_eq!(files, "", "files");
    let lines = machine.sh(&format!("grep -rlE '\\b{USER}\\b|{OWNER}' /etc/passwd /etc/shadow /etc/group /etc/gshadow /etc/subuid /etc/subgid /etc/sudoers.d /etc/security /home /root /var/lib/gpuaas-agent || true"));
    assert_eq!(lines, "", "lines");
    assert_eq!(machine.sh("ls -A /home /var/spool/cron/crontabs | grep -v : || true"), "");
    assert!(machine.ssh(USER, key, "true").unwrap_err().contains("Permission denied"));
    assert!(done::<Vec<String>>(machine, Request::Users).is_empty());
}

#[test]
fn a_user_signs_in_with_its_keys_and_has_what_was_asked() {
    let machine = Machine::start();
    let (first, second, foreign) = (machine.key("first"), machine.key("second"), machine.key("foreign"));
    let answer = call(&machine, provision(&[&first]), None);
    assert_eq!(answer.phases, ["account", "home", "limits", "keys"]);
    let user: ProvisionedUser = serde_json::from_value(answer.result.unwrap()).unwrap();
    assert_eq!((user.home.as_str(), user.keys, user.created), ("/home/tenant", 1, true));

    let whoami = machine
        .ssh(USER, &first, "id -u; id -g; echo $HOME $SHELL; ulimit -n; ulimit -u; sudo -n id -u")
        .unwrap();
    assert_eq!(whoami, format!("{UID}\n{UID}\n/home/tenant /bin/bash\n512\n300\n0"));
    let modes = machine.sh("stat -c '%a %U %G' /home/tenant $H/tenant/.ssh $H/tenant/.ssh/authorized_keys $H/tenant/.bashrc /etc/sudoers.d/gpuaas-alloc_0197");
    assert_eq!(
        modes,
        "700 tenant tenant\n700 tenant tenant\n600 tenant tenant\n644 tenant tenant\n440 root root"
    );
    machine.sh("visudo -c");
    assert!(machine.ssh(USER, &second, "true").is_err());
    assert_eq!(done::<Vec<String>>(&machine, Request::Users), [USER]);

    // Asked again, nothing changes.
    let before = machine.sh("cat /etc/passwd /etc/shadow /etc/group $H/tenant/.ssh/authorized_keys");
    let again: ProvisionedUser = done(&machine, provision(&[&first]));
    assert!(!again.created);
    assert_eq!(machine.sh("cat /etc/passwd /etc/shadow /etc/group $H/tenant/.ssh/authorized_keys"), before);

    // A key that the user put in by hand stays and works, whatever the managed set is.
    machine
        .ssh(
            USER,
            &first,
            &format!(
                "echo '# mine' >>.ssh/authorized_keys; echo '{}' >>.ssh/authorized_keys",
                foreign.public
            ),
        )
        .unwrap();
    let installed: InstalledKeys = done(&machine, install(&[&second]));
    assert_eq!(installed, InstalledKeys { keys: 1, changed: true });
    assert!(machine.ssh(USER, &second, "true").is_ok());
    assert!(machine.ssh(USER, &foreign, "true").is_ok());
    assert!(machine.ssh(USER, &first, "true").unwrap_err().contains("Permission denied"));
    assert!(!done::<InstalledKeys>(&machine, install(&[&second])).changed);
    // Keys can be taken away without bringing any: what the machine does not have is not added.
    done::<InstalledKeys>(&machine, install(&[&first, &second]));
    let kept: InstalledKeys = done(&machine, Request::Retain(key_set(&[&second, &foreign])));
    assert_eq!(kept, InstalledKeys { keys: 1, changed: true });
    assert!(machine.ssh(USER, &first, "true").unwrap_err().contains("Permission denied"));
    let kept: InstalledKeys = done(&machine, Request::Retain(key_set(&[&first, &second])));
    assert_eq!(kept, InstalledKeys { keys: 1, changed: false });
    assert!(machine.ssh(USER, &first, "true").unwrap_err().contains("Permission denied"));
    assert!(machine.ssh(USER, &second, "true").is_ok());
    assert!(done::<InstalledKeys>(&machine, install(&[])).changed);
    assert!(machine.ssh(USER, &second, "true").is_err());
    assert!(machine.ssh(USER, &foreign, "true").is_ok());
    assert_eq!(machine.sh("cat $H/tenant/.ssh/authorized_keys"), format!("# mine\n{}", foreign.public));
    // Without sudo and limits their files are gone.
    let plain = ProvisionUserInput { limits: AccountLimits::default(), ..unprivileged(&[&first]) };
    done::<ProvisionedUser>(&machine, Request::Provision(plain));
    assert!(machine.ssh(USER, &first, "sudo -n id -u").is_err());
    assert_eq!(machine.sh("find /etc -name '*alloc_0197*'"), "");
    let _: DeprovisionedUser = done(&machine, deprovision());
    assert_gone(&machine, &foreign);
}

/// What a user may leave behind: a daemon that has left its session and makes new processes all the time, a cron
/// table, a job for later, files in every place that is open to all, in others' directories, deep ones, with links
/// to what is not theirs; shared memory.
const MESS: &str = r#"
set -e
(setsid bash -c 'trap "" TERM HUP; while :; do (sleep 0.05 &) ; sleep 0.02; done' </dev/null >/dev/null 2>&1 &)
nohup sleep 1000 </dev/null >/dev/null 2>&1 &
echo '* * * * * touch /tmp/from-cron' | crontab -
echo 'touch /tmp/from-at' | at now + 1 hour 2>/dev/null
mkdir -p /tmp/mine/$(printf 'd/%.0s' $(seq 200)) /var/tmp/mine /tmp/shared/below
ln -s /etc /tmp/mine/etc; ln -s /etc/passwd /var/tmp/mine/passwd; mkfifo /tmp/mine/pipe
touch /dev/shm/mine /run/lock/mine "/tmp/a name with
a line break" /tmp/shared/mine
ipcmk -M 4096 >/dev/null; ipcmk -S 2 >/dev/null; ipcmk -Q >/dev/null
ln -s /root ~/root; chmod 000 ~/.bashrc; mkdir -m 000 ~/closed
sudo -n bash -c 'touch ~tenant/of-root; chown root ~tenant/.profile'
"#;

#[test]
fn removal_leaves_no_process_file_or_key_behind() {
    let machine = Machine::start();
    let (key, other_key) = (machine.key("key"), machine.key("other"));
    let _: ProvisionedUser = done(&machine, provision(&[&key]));
    // Somebody else on the same machine, who must not notice.
    let bystander = AccountSpec { username: "bystander".into(), uid: 20_018, gid: 20_018 };
    let other =
        ProvisionUserInput { account: bystander, owner: "alloc_other".into(), ..input(&[&other_key]) };
    let _: ProvisionedUser = done(&machine, Request::Provision(other));
    machine.sh("mkdir -m 1777 /tmp/shared");
    machine.ssh("bystander", &other_key, "touch /tmp/theirs /tmp/shared/theirs; nohup sleep 1000 </dev/null >/dev/null 2>&1 & echo '0 0 * * * true' | crontab -").unwrap();
    machine.ssh(USER, &key, MESS).unwrap();
    // Copied by hand to where it does not belong, beside a key that does.
    machine.sh("mkdir -p -m 700 $R/.ssh; (echo 'kept line'; cat $H/tenant/.ssh/authorized_keys) >$R/.ssh/authorized_keys");

    let answer = call(&machine, deprovision(), None);
    assert_eq!(answer.phases, ["lock", "processes", "schedules", "files", "account", "verify"]);
    let removed: DeprovisionedUser = serde_json::from_value(answer.result.unwrap()).unwrap();
    assert!(removed.account_removed && removed.processes_killed >= 3, "{removed:?}");
    assert_eq!(removed.schedules_removed, 2);
    assert!(removed.files_removed > 200, "{removed:?}");

    assert_eq!(machine.sh("cat $R/.ssh/authorized_keys"), "kept line");
    machine.sh("rm -r $R/.ssh; test -f /etc/passwd -a -d /etc/ssh");
    assert_eq!(
        machine.sh(&format!(
            "awk '$8 == {UID} || $5 == {UID}' /proc/sysvipc/shm /proc/sysvipc/sem /proc/sysvipc/msg"
        )),
        ""
    );
    // The bystander is as before.
    assert_eq!(
        machine
            .ssh("bystander", &other_key, "ls /tmp/theirs /tmp/shared/theirs; crontab -l | tail -1; id -un")
            .unwrap(),
        "/tmp/shared/theirs\n/tmp/theirs\n0 0 * * * true\nbystander"
    );
    eventually("the bystander's process runs", || {
        machine.sh("grep -lE '^Uid:.20018' /proc/[0-9]*/status | wc -l") != "0"
    });
    assert_eq!(done::<Vec<String>>(&machine, Request::Users), ["bystander"]);
    let again: DeprovisionedUser = done(&machine, deprovision());
    assert_eq!(again, DeprovisionedUser::default());
    let leave = DeprovisionUserInput {
        account: AccountSpec { username: "bystander".into(), uid: 20_018, gid: 20_018 },
        owner: "alloc_other".into(),
    };
    let _: DeprovisionedUser = done(&machine, Request::Deprovision(leave));
    assert_gone(&machine, &key);
}

#[test]
fn what_was_interrupted_at_any_step_can_be_asked_again() {
    let machine = Machine::start();
    let key = machine.key("key");
    for phase in ["account", "home", "limits", "keys"] {
        assert!(call(&machine, provision(&[&key]), Some(phase)).result.is_err());
    }
    let _: ProvisionedUser = done(&machine, provision(&[&key]));
    for phase in ["lock", "processes", "schedules", "files", "account", "verify"] {
        let _: ProvisionedUser = done(&machine, provision(&[&key]));
        machine.ssh(USER, &key, "touch /tmp/mine; echo '* * * * * true' | crontab -; nohup sleep 1000 </dev/null >/dev/null 2>&1 &").unwrap();
        assert!(call(&machine, deprovision(), Some(phase)).result.is_err());
        if phase != "lock" {
            assert!(machine.ssh(USER, &key, "true").is_err(), "locked out from the first step on");
            assert!(refused(&machine, provision(&[&key])).contains("is being removed"));
            assert_eq!(done::<Vec<String>>(&machine, Request::Users), [USER], "not forgotten");
        }
        let _: DeprovisionedUser = done(&machine, deprovision());
        assert_gone(&machine, &key);
    }
    // Only the mark in the account is left when the agent's state was lost.
    let _: ProvisionedUser = done(&machine, provision(&[&key]));
    machine.sh("rm -r /var/lib/gpuaas-agent");
    assert_eq!(done::<Vec<String>>(&machine, Request::Users), [USER]);
    assert!(!done::<InstalledKeys>(&machine, install(&[&key])).changed);
    let _: DeprovisionedUser = done(&machine, deprovision());
    assert_gone(&machine, &key);
}

#[test]
fn accounts_of_others_are_refused_and_never_touched() {
    let machine = Machine::start();
    let key = machine.key("key");
    let with = |username: &str, uid: u32, gid: u32| AccountSpec { username: username.into(), uid, gid };
    machine.sh("groupadd -g 30001 admin; useradd -u 30001 -g 30001 -m admin; groupadd -g 30002 lone");
    let before = machine.sh("cat /etc/passwd /etc/shadow /etc/group");
    for account in [
        with("root", 20_001, 20_001),
        with("admin", 30_001, 30_001),
        with("admin", 20_001, 20_001),
        with("fresh", 30_001, 20_001),
        with("fresh", 20_001, 30_001),
        with("fresh", 1000, 20_001),
        with("fresh", 20_001, 0),
        with("lone", 20_001, 30_002),
        with("fresh;id", 20_001, 20_001),
    ] {
        let spec = ProvisionUserInput { account: account.clone(), ..input(&[&key]) };
        refused(&machine, Request::Provision(spec));
        let leave = DeprovisionUserInput { account: account.clone(), owner: OWNER.into() };
        refused(&machine, Request::Deprovision(leave));
        let keys = InstallAuthorizedKeysInput { account, owner: OWNER.into(), authorized_keys: vec![] };
        refused(&machine, Request::Keys(keys));
    }
    assert!(
        refused(
            &machine,
            Request::Provision(ProvisionUserInput { shell: "/bin/nosuch".into(), ..input(&[]) })
        )
        .contains("is not installed")
    );
    assert_eq!(machine.sh("cat /etc/passwd /etc/shadow /etc/group"), before);
    // An account of one owner is nobody else's; a home of somebody else's is not taken over.
    let _: ProvisionedUser = done(&machine, provision(&[&key]));
    let thief = ProvisionUserInput { owner: "alloc_thief".into(), ..input(&[&key]) };
    assert!(refused(&machine, Request::Provision(thief)).contains(OWNER));
    let leave = DeprovisionUserInput { account: account(), owner: "alloc_thief".into() };
    assert!(refused(&machine, Request::Deprovision(leave)).contains(OWNER));
    assert!(machine.ssh(USER, &key, "true").is_ok());
    let _: DeprovisionedUser = done(&machine, deprovision());
    machine.sh("mkdir /home/tenant; touch $H/tenant/theirs; chown 30001 /home/tenant");
    assert!(refused(&machine, provision(&[&key])).contains("belongs to the uid 30001"));
}

#[test]
fn links_that_a_user_lays_are_not_followed() {
    let machine = Machine::start();
    let (key, next) = (machine.key("key"), machine.key("next"));
    let _: ProvisionedUser = done(&machine, provision(&[&key]));
    let untouched = "cat /etc/shadow; ls -la /root; stat -c '%a %u %g %s' /root /etc /etc/shadow";
    machine.sh("mkdir -m 700 -p $R/.ssh; echo kept >$R/.ssh/authorized_keys; sysctl -qw fs.protected_hardlinks=0 2>/dev/null || true");
    let before = machine.sh(untouched);
    for trap in [
        "rm -r .ssh; ln -s ~root/.ssh .ssh",
        "rm -r .ssh; ln -s /etc .ssh",
        "rm -rf .ssh; mkdir .ssh; ln -s /etc/shadow .ssh/authorized_keys",
        "rm -rf .ssh; mkdir .ssh; ln -s ~root/.ssh/authorized_keys .ssh/authorized_keys",
        "rm -rf .ssh; mkdir .ssh; mkfifo .ssh/authorized_keys",
        "rm -rf .ssh; mkdir -p .ssh/authorized_keys",
        "rm -rf .ssh; touch .ssh",
    ] {
        machine.sh(&format!(
            "setpriv --reuid={UID} --regid={UID} --clear-groups bash -ec 'cd /home/tenant; {trap}'"
        ));
        let why = refused(&machine, install(&[&next]));
        assert!(why.contains(".ssh"), "{trap}: {why}");
        assert_eq!(machine.sh(untouched), before, "{trap}");
    }
    // A second name of a file of root's is not read into a file of the user's.
    machine.sh("cd /home/tenant; rm -rf .ssh; mkdir .ssh; ln /etc/shadow .ssh/authorized_keys; chown tenant:tenant .ssh");
    assert!(refused(&machine, install(&[&next])).contains("not a plain file of its user's"));
    machine.sh("rm $H/tenant/.ssh/authorized_keys");
    // A trap where the new file is written is only a name.
    machine.sh("ln -s /etc/shadow $H/tenant/.ssh/.authorized_keys.gpuaas");
    let _: InstalledKeys = done(&machine, install(&[&next]));
    assert_eq!(machine.sh(untouched), before);
    assert!(machine.ssh(USER, &next, "true").is_ok());
    machine.sh("rm -r $R/.ssh");
    let _: DeprovisionedUser = done(&machine, deprovision());
    assert_gone(&machine, &next);
}
