//! terminado: the terminals of Jupyter, a web terminal without a control plane, a tunnel or recordings.

use std::{
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use testkit::free_port;

use super::web::Terminado;
use crate::exec::{self, Running};

const SERVER: &str = include_str!("terminado_server.py");
const START: Duration = Duration::from_secs(20);

pub struct Peer {
    running: Running,
    address: String,
}

impl Peer {
    pub async fn start(dir: &Path) -> anyhow::Result<Self> {
        let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../.tools/venv-bench/bin/python");
        anyhow::ensure!(python.exists(), "install it first: scripts/tools.sh terminado");
        let (script, port) = (dir.join("terminado_server.py"), free_port());
        std::fs::write(&script, SERVER)?;
        let mut command = exec::command(python);
        command.arg(script).arg(port.to_string()).current_dir(dir);
        command.stdout(Stdio::null()).stderr(std::fs::File::create(dir.join("terminado.log"))?);
        let peer = Self { running: Running::start(command)?, address: format!("127.0.0.1:{port}") };
        let begun = Instant::now();
        while tokio::net::TcpStream::connect(&peer.address).await.is_err() {
            anyhow::ensure!(
                begun.elapsed() < START,
                "terminado did not start: {}",
                std::fs::read_to_string(dir.join("terminado.log"))?
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(peer)
    }

    pub fn pid(&self) -> u32 {
        self.running.pid()
    }

    pub fn open(&self) -> anyhow::Result<Terminado> {
        Terminado::open(&self.address)
    }
}
