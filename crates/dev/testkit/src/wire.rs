//! The network between an agent and the control plane, which can lose what goes through it.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
};

use crate::eventually;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    Open,
    /// What the control plane says does not arrive; what is said to it does.
    AnswersLost,
    /// Nothing goes through, and nobody is told.
    Silent,
    /// Nothing goes through, and connections end.
    Cut,
}

/// Listens on a port of its own; ends with this value.
pub struct Wire {
    /// Where an agent finds the node listener through this wire.
    pub url: String,
    flow: watch::Sender<Flow>,
    open: Arc<AtomicUsize>,
}

impl Wire {
    pub async fn to(node_url: &str) -> Self {
        let upstream: SocketAddr =
            node_url.trim_start_matches("https://").trim_end_matches('/').parse().expect("an address");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("https://{}", listener.local_addr().expect("an address"));
        let (flow, watched) = watch::channel(Flow::Open);
        let open = Arc::new(AtomicUsize::new(0));
        let count = open.clone();
        tokio::spawn(async move {
            let mut ended = watched.clone();
            loop {
                tokio::select! {
                    accepted = listener.accept() => {
                        let Ok((client, _)) = accepted else { return };
                        let (count, watched) = (count.clone(), watched.clone());
                        count.fetch_add(1, Ordering::SeqCst);
                        tokio::spawn(async move {
                            Box::pin(carry(client, upstream, watched)).await;
                            count.fetch_sub(1, Ordering::SeqCst);
                        });
                    }
                    changed = ended.changed() => if changed.is_err() { return },
                }
            }
        });
        Self { url, flow, open }
    }

    pub fn set(&self, flow: Flow) {
        self.flow.send_replace(flow);
    }

    /// Until no connection is left, after a cut.
    pub async fn ended(&self) {
        eventually("all connections ended", || async {
            (self.open.load(Ordering::SeqCst) == 0).then_some(())
        })
        .await;
    }
}

async fn carry(mut client: TcpStream, upstream: SocketAddr, mut flow: watch::Receiver<Flow>) {
    let Ok(mut server) = TcpStream::connect(upstream).await else { return };
    let (mut up, mut down) = ([0_u8; 16 * 1024], [0_u8; 16 * 1024]);
    let mut lost = false;
    loop {
        let now = *flow.borrow_and_update();
        // Nobody can go on with a connection that has a hole.
        if now == Flow::Cut || (lost && now == Flow::Open) {
            return;
        }
        if now == Flow::Silent {
            if flow.changed().await.is_err() {
                return;
            }
            continue;
        }
        tokio::select! {
            read = client.read(&mut up) => {
                let Some(n) = read.ok().filter(|n| *n > 0) else { return };
                if server.write_all(&up[..n]).await.is_err() { return }
            }
            read = server.read(&mut down) => {
                let Some(n) = read.ok().filter(|n| *n > 0) else { return };
                if *flow.borrow() == Flow::AnswersLost {
                    lost = true;
                } else if client.write_all(&down[..n]).await.is_err() {
                    return;
                }
            }
            changed = flow.changed() => if changed.is_err() { return },
        }
    }
}
