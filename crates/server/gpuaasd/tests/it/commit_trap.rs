//! A proxy between the server and Postgres that can catch the moment after a COMMIT took effect and before
//! the server learns of it: the worst time to die.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
};

use nix::{sys::signal::Signal, unistd::Pid};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
};

/// CommandComplete for COMMIT, as the protocol spells it.
const COMMITTED: &[u8] = b"C\0\0\0\x0bCOMMIT\0";

pub struct CommitTrap {
    dir: tempfile::TempDir,
    victim: Arc<AtomicI32>,
    task: tokio::task::JoinHandle<()>,
}

impl CommitTrap {
    pub async fn set_up() -> Self {
        let upstream = PathBuf::from(testkit::socket_dir()).join(".s.PGSQL.5432");
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join(".s.PGSQL.5432")).unwrap();
        let victim = Arc::new(AtomicI32::new(0));
        let armed = victim.clone();
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (upstream, armed) = (upstream.clone(), armed.clone());
                tokio::spawn(async move { carry(client, &upstream, &armed).await });
            }
        });
        Self { dir, victim, task }
    }

    pub fn database_section(&self, database: &str) -> String {
        format!(
            "[database]\nurl = \"postgres:///{database}?host={}&user=gpuaas_super\"\n",
            self.dir.path().display()
        )
    }

    /// The next COMMIT that takes effect kills `pid`.
    pub fn arm(&self, pid: u32) {
        self.victim.store(i32::try_from(pid).unwrap(), Ordering::SeqCst);
    }
}

impl Drop for CommitTrap {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(client: UnixStream, upstream: &Path, armed: &AtomicI32) {
    let Ok(server) = UnixStream::connect(upstream).await else { return };
    let (mut client_read, mut client_write) = client.into_split();
    let (mut server_read, mut server_write) = server.into_split();
    let up = async { tokio::io::copy(&mut client_read, &mut server_write).await.map(|_| ()) };
    let down = async {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let n = server_read.read(&mut buffer).await?;
            if n == 0 {
                return Ok::<(), std::io::Error>(());
            }
            if buffer[..n].windows(COMMITTED.len()).any(|w| w == COMMITTED) {
                let victim = armed.swap(0, Ordering::SeqCst);
                if victim != 0 {
                    let _ = nix::sys::signal::kill(Pid::from_raw(victim), Signal::SIGKILL);
                    return Ok(());
                }
            }
            client_write.write_all(&buffer[..n]).await?;
        }
    };
    tokio::select! { _ = up => {} _ = down => {} }
}
