//! What people do with SSH.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    process::{Child, Stdio},
};

use futures_util::future::join_all;
use kernel::digest::sha256;
use testkit::{eventually, free_port};

use super::{
    Launched,
    laptop::{HOST, Laptop, succeeded, text},
};
use crate::terminals::client::SOON;

const MB: usize = 1024 * 1024;

/// Bytes that no compression makes small.
fn noise(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    fs::File::open("/dev/urandom").unwrap().read_exact(&mut bytes).unwrap();
    bytes
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether any process has this in its command line or environment.
pub fn is_seen_in_processes(secret: &str) -> bool {
    let entries = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    entries.flat_map(|entry| [entry.path().join("cmdline"), entry.path().join("environ")]).any(|file| {
        fs::read(file).is_ok_and(|bytes| bytes.windows(secret.len()).any(|part| part == secret.as_bytes()))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn every_program_that_uses_ssh_works_through_the_tunnel() {
    let launched = Launched::new().await;
    let laptop = Laptop::for_creator(&launched);
    let before = fs::read_to_string(laptop.config()).unwrap();
    succeeded(&laptop.ssh_config().await);
    let written = fs::read_to_string(laptop.config()).unwrap();
    assert!(written.ends_with(&before), "what was there stays: {written}");
    succeeded(&laptop.ssh_config().await);
    assert_eq!(fs::read_to_string(laptop.config()).unwrap(), written, "the same again changes nothing");

    let connection = launched.bo.get(&launched.id).await["connection"].clone();
    let user = connection["username"].as_str().unwrap();
    assert_eq!(succeeded(&laptop.ssh(&[HOST, "whoami"]).await), user);
    let refused = laptop.ssh(&[HOST, "exit 7"]).await;
    assert_eq!(refused.status.code(), Some(7), "{}", text(&refused.stderr));

    // By our own command, which needs no configuration of ssh.
    let key = launched.key.file.to_str().unwrap();
    let ran = laptop.gpuaas(&["ssh", "train-1", "--", "-i", key, "-o", "BatchMode=yes", "whoami"]).await;
    assert_eq!(succeeded(&ran), user);
    assert!(!text(&ran.stderr).contains("authenticity"), "{}", text(&ran.stderr));

    transfers(&laptop).await;
    forwarding(&laptop).await;
    socks(&laptop).await;
    script(&laptop).await;
    git(&laptop).await;

    let ran = laptop.ssh(&["-tt", HOST, "top", "-n", "1"]).await;
    assert!(succeeded(&ran).contains("load average"), "{}", text(&ran.stdout));
    many_at_once(&launched, &laptop).await;
}

async fn transfers(laptop: &Laptop) {
    let (sent, content) = (laptop.path("sent"), noise(50 * MB));
    fs::write(&sent, &content).unwrap();
    let config = laptop.config();
    let config = config.to_str().unwrap();
    let there = format!("{HOST}:kept");
    succeeded(&laptop.run("scp", &["-F", config, "sent", &there]).await);
    let digest = succeeded(&laptop.ssh(&[HOST, "sha256sum kept"]).await);
    assert_eq!(digest.split(' ').next().unwrap(), kernel::hex::Hex(sha256(&content).to_vec()).to_string());
    succeeded(&laptop.run("scp", &["-F", config, &there, "back"]).await);
    assert!(fs::read(laptop.path("back")).unwrap() == content, "it came back as it was");

    fs::create_dir(laptop.path("tree")).unwrap();
    for name in ["a", "b"] {
        fs::write(laptop.path("tree").join(name), noise(100_000)).unwrap();
    }
    let shell = format!("ssh -F {config}");
    let rsync = async |from: &str, to: &str| {
        succeeded(&laptop.run("rsync", &["-a", "-e", &shell, from, to]).await);
    };
    rsync("tree/", &format!("{HOST}:tree/")).await;
    rsync(&format!("{HOST}:tree/"), "copy/").await;
    for name in ["a", "b"] {
        let read = |tree: &str| fs::read(laptop.path(tree).join(name)).unwrap();
        assert_eq!(read("tree"), read("copy"));
    }

    fs::write(laptop.path("batch"), "put tree/a by-sftp\nget by-sftp by-sftp\n").unwrap();
    succeeded(&laptop.run("sftp", &["-F", config, "-b", "batch", HOST]).await);
    assert_eq!(fs::read(laptop.path("by-sftp")).unwrap(), fs::read(laptop.path("tree/a")).unwrap());
}

/// Both directions carry a question and an answer.
async fn forwarding(laptop: &Laptop) {
    for option in ["-L", "-R"] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, target) = (free_port(), listener.local_addr().unwrap().port());
        let rule = format!("127.0.0.1:{port}:127.0.0.1:{target}");
        let mut ssh = laptop.ssh_command(&["-N", "-o", "ExitOnForwardFailure=yes", option, &rule, HOST]);
        let _running = Running(ssh.stdout(Stdio::null()).spawn().unwrap());
        let mut near =
            eventually("the port is forwarded", || async { TcpStream::connect(("127.0.0.1", port)).ok() })
                .await;
        let (mut far, _) = listener.accept().unwrap();
        let mut read = [0; 4];
        near.write_all(b"ping").unwrap();
        far.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"ping", "{option}");
        far.write_all(b"pong").unwrap();
        near.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"pong", "{option}");
    }
}

/// `-D`, with which VS Code Remote reaches its server: ssh is a SOCKS proxy, and the machine makes the connections.
async fn socks(laptop: &Laptop) {
    const NO_AUTHENTICATION: [u8; 3] = [5, 1, 0];
    const CONNECT_BY_NAME: [u8; 5] = [5, 1, 0, 3, 9];
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free_port();
    let rule = format!("127.0.0.1:{port}");
    let mut ssh = laptop.ssh_command(&["-N", "-o", "ExitOnForwardFailure=yes", "-D", &rule, HOST]);
    let _running = Running(ssh.stdout(Stdio::null()).spawn().unwrap());
    let connect = || async { TcpStream::connect(("127.0.0.1", port)).ok() };
    let target = listener.local_addr().unwrap().port().to_be_bytes();
    let mut carried = Vec::new();
    // Several connections share what carries them.
    for number in 0..3_u8 {
        let mut near = eventually("the proxy is there", connect).await;
        near.set_read_timeout(Some(SOON)).unwrap();
        near.write_all(&NO_AUTHENTICATION).unwrap();
        let mut chosen = [0; 2];
        near.read_exact(&mut chosen).unwrap();
        assert_eq!(chosen, [5, 0]);
        near.write_all(&[&CONNECT_BY_NAME[..], b"127.0.0.1", &target].concat()).unwrap();
        let mut answer = [0; 10];
        near.read_exact(&mut answer).unwrap();
        assert_eq!(answer[..2], [5, 0], "connected");
        let (mut far, _) = listener.accept().unwrap();
        far.set_read_timeout(Some(SOON)).unwrap();
        far.write_all(&[number]).unwrap();
        carried.push((near, far));
    }
    for (number, (mut near, mut far)) in carried.into_iter().enumerate() {
        let mut read = [0; 4];
        near.write_all(b"ping").unwrap();
        far.read_exact(&mut read).unwrap();
        assert_eq!(&read, b"ping");
        near.read_exact(&mut read[..1]).unwrap();
        assert_eq!(usize::from(read[0]), number, "each has its own bytes");
    }
}

/// `sh -s <script`: more than one window of it, which ends with the file.
async fn script(laptop: &Laptop) {
    let padding = ": nothing that a shell does anything about\n".repeat(20_000);
    let lines = format!("echo begin\n{padding}echo $((6 * 7))\n(exit 7)\n");
    fs::write(laptop.path("script"), lines).unwrap();
    let mut ssh = laptop.ssh_command(&[HOST, "sh -s"]);
    ssh.stdin(fs::File::open(laptop.path("script")).unwrap()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let ssh = ssh.spawn().unwrap();
    let ended = tokio::task::spawn_blocking(move || ssh.wait_with_output());
    let ran = tokio::time::timeout(SOON, ended).await.expect("the script ends").unwrap().unwrap();
    assert_eq!(text(&ran.stdout), "begin\n42", "{}", text(&ran.stderr));
    assert_eq!(ran.status.code(), Some(7));
}

async fn git(laptop: &Laptop) {
    let made = "git init -q repo && cd repo && echo hello > file && git add file && \
                git -c user.name=x -c user.email=x@example.org commit -qm first";
    succeeded(&laptop.ssh(&[HOST, made]).await);
    let shell = format!("core.sshCommand=ssh -F {}", laptop.config().display());
    let from = format!("{HOST}:repo");
    succeeded(&laptop.run("git", &["-c", &shell, "clone", "-q", &from, "cloned"]).await);
    assert_eq!(fs::read_to_string(laptop.path("cloned/file")).unwrap(), "hello\n");
}

async fn many_at_once(launched: &Launched, laptop: &Laptop) {
    let began = succeeded(&laptop.ssh(&[HOST, "rm -f go; mkdir -p here; date +%s"]).await);
    assert!(!began.is_empty());
    let sessions = join_all((0..20).map(|number| async move {
        let wait = format!("touch here/{number}; while [ ! -e go ]; do sleep 0.1; done; echo {number}");
        succeeded(&laptop.ssh(&[HOST, &wait]).await)
    }));
    let release = async {
        eventually("all are there", || async {
            let count = succeeded(&laptop.ssh(&[HOST, "ls here | wc -l"]).await);
            (count == "20").then_some(())
        })
        .await;
        assert!(!is_seen_in_processes("gpterm_"), "a token is in an argument or a variable");
        let metrics = reqwest::get(format!("{}/metrics", launched.world.server.ops)).await.unwrap();
        let metrics = metrics.text().await.unwrap();
        assert!(metrics.contains("ssh_connections 20"), "{metrics}");
        succeeded(&laptop.ssh(&[HOST, "touch go"]).await);
    };
    let (said, ()) = tokio::join!(sessions, release);
    assert_eq!(said, (0..20).map(|number| number.to_string()).collect::<Vec<_>>());
    for log in [launched.world.server.log(), launched.host.agent_log()] {
        assert!(!log.contains("gpterm_"), "a token is in a log");
    }
    let audited = "SELECT count(*) FROM audit_logs WHERE action = 'terminal.ssh_token_create'";
    assert!(launched.world.db.one::<i64>(audited).await >= 20, "every token is in the audit trail");
}
