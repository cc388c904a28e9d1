//! A way to Postgres that can be shut: connections are accepted, and nothing answers until it is opened.

use std::path::{Path, PathBuf};

use tokio::{
    net::{UnixListener, UnixStream},
    sync::watch,
};

pub struct DatabaseGate {
    dir: tempfile::TempDir,
    open: watch::Sender<bool>,
    waiting: watch::Receiver<usize>,
    task: tokio::task::JoinHandle<()>,
}

impl DatabaseGate {
    pub async fn shut() -> Self {
        let upstream = PathBuf::from(testkit::socket_dir()).join(".s.PGSQL.5432");
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join(".s.PGSQL.5432")).unwrap();
        let (open, opened) = watch::channel(false);
        let (came, waiting) = watch::channel(0);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                came.send_modify(|count| *count += 1);
                let (upstream, opened) = (upstream.clone(), opened.clone());
                tokio::spawn(async move { carry(client, &upstream, opened).await });
            }
        });
        Self { dir, open, waiting, task }
    }

    pub fn database_section(&self, database: &str) -> String {
        format!(
            "[database]\nurl = \"postgres:///{database}?host={}&user=gpuaas_super\"\n",
            self.dir.path().display()
        )
    }

    /// Until somebody stands at the gate.
    pub async fn until_somebody_waits(&mut self) {
        let came = self.waiting.wait_for(|count| *count > 0);
        tokio::time::timeout(std::time::Duration::from_secs(20), came)
            .await
            .expect("somebody comes")
            .unwrap();
    }

    pub fn open(&self) {
        self.open.send_replace(true);
    }
}

impl Drop for DatabaseGate {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(mut client: UnixStream, upstream: &Path, mut opened: watch::Receiver<bool>) {
    if opened.wait_for(|open| *open).await.is_err() {
        return;
    }
    let Ok(mut server) = UnixStream::connect(upstream).await else { return };
    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
}
