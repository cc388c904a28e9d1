//! The network between a node and the control plane, with its faults: messages are late, get lost, and
//! connections break. It knows nothing of what is inside: what it loses, it loses together with the connection,
//! as every network below TCP does.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use node_agent::transport::{Connect, Tcp};
use node_proto::contract::{HEARTBEAT, PROGRESS, RESULT, Route, WAIT};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

use crate::{
    dice::{Dice, Purpose},
    plan::{Nature, Plan},
    report::Counters,
    script::NodeScript,
};

/// One node's network. Its dice roll on across connections and restarts of the agent.
pub struct Network {
    plan: Arc<Plan>,
    nature: Nature,
    dice: Dice,
    repeats: Dice,
    counters: Arc<Counters>,
    script: Arc<NodeScript>,
}

impl Network {
    pub fn new(
        plan: Arc<Plan>,
        nature: Nature,
        node: u64,
        counters: Arc<Counters>,
        script: Arc<NodeScript>,
    ) -> Self {
        let dice = Dice::new(plan.seed, node, Purpose::Wire);
        let repeats = Dice::new(plan.seed, node, Purpose::Repeats);
        Self { plan, nature, dice, repeats, counters, script }
    }

    /// How late the next message is, if at all.
    fn lateness(&self) -> Option<Pin<Box<Sleep>>> {
        let mut late = self.dice.between(&self.plan.latency_ms.0);
        if self.dice.falls(self.nature.faults.delay) {
            self.counters.fault_delay.add();
            late += Duration::from_millis(self.plan.extents.delay_ms);
        }
        (!late.is_zero()).then(|| Box::pin(sleep(late)))
    }
}

/// A network as the agent uses it.
#[derive(Clone)]
pub struct Link(pub Arc<Network>);

impl Connect for Link {
    type Io = Wire;

    async fn connect(&self, host: &str, port: u16) -> io::Result<Wire> {
        if self.0.script.offline() {
            return Err(Wire::broken());
        }
        let inner = Tcp.connect(host, port).await?;
        let network = self.0.clone();
        let cut = network.nature.flaps.then(|| {
            // From half of the usual time to one and a half.
            let usual = network.plan.extents.flap_ms.max(2);
            Box::pin(sleep(Duration::from_millis(usual / 2 + network.dice.below(usual))))
        });
        network.counters.connections.add();
        network.counters.connected.add();
        Ok(Wire { inner, network, cut, sending: Sending::Idle, arriving: None, answer_lost: false })
    }

    /// What a node says of its work and of itself may arrive twice, and so may the work. Enrolling and renewing
    /// are not repeated: what they use up would be gone.
    fn repeats(&self, route: &Route) -> bool {
        let network = &self.0;
        let may = [&WAIT, &PROGRESS, &RESULT, &HEARTBEAT].iter().any(|other| other.id == route.id);
        let repeats = may && network.repeats.falls(network.nature.faults.duplicate);
        if repeats {
            network.counters.fault_duplicate.add();
        }
        if repeats && route.id == WAIT.id {
            network.counters.tasks_delivered_again.add();
        }
        repeats
    }
}

/// One connection.
pub struct Wire {
    inner: <Tcp as Connect>::Io,
    network: Arc<Network>,
    /// When the network goes down.
    cut: Option<Pin<Box<Sleep>>>,
    sending: Sending,
    /// What has arrived, and when the node may see it.
    arriving: Option<(Pin<Box<Sleep>>, Vec<u8>)>,
    answer_lost: bool,
}

enum Sending {
    Idle,
    Late(Pin<Box<Sleep>>),
    /// Its lot is drawn; the network takes it when it can.
    Admitted,
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.network.counters.connected.take();
    }
}

impl Wire {
    fn broken() -> io::Error {
        io::Error::new(io::ErrorKind::ConnectionReset, "simulated fault of the network")
    }

    /// Nothing more gets through. A network that comes back needs a new connection.
    fn is_cut(&mut self) -> bool {
        self.answer_lost |= self.network.script.offline();
        self.answer_lost
    }

    fn poll_cut(&mut self, cx: &mut Context<'_>) {
        let Some(cut) = &mut self.cut else { return };
        if cut.as_mut().poll(cx).is_ready() {
            self.cut = None;
            self.answer_lost = true;
            self.network.counters.fault_flap.add();
        }
    }

    /// Ready when the next message may go out; an error when it is lost.
    fn poll_admit(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_cut(cx);
        if self.is_cut() {
            return Poll::Ready(Err(Self::broken()));
        }
        if matches!(self.sending, Sending::Idle) {
            if self.network.dice.falls(self.network.nature.faults.drop) {
                self.network.counters.fault_drop.add();
                let request_lost = self.network.dice.below(2) == 0;
                self.answer_lost = true;
                if request_lost {
                    return Poll::Ready(Err(Self::broken()));
                }
            }
            self.sending = self.network.lateness().map_or(Sending::Admitted, Sending::Late);
        }
        if let Sending::Late(until) = &mut self.sending {
            ready!(until.as_mut().poll(cx));
            self.sending = Sending::Admitted;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let wire = &mut *self;
        wire.poll_cut(cx);
        if wire.answer_lost {
            return Poll::Ready(Err(Self::broken()));
        }
        if wire.arriving.is_none() {
            let before = buf.filled().len();
            ready!(Pin::new(&mut wire.inner).poll_read(cx, buf))?;
            if wire.is_cut() {
                buf.set_filled(before);
                return Poll::Ready(Err(Self::broken()));
            }
            let arrived = buf.filled().get(before..).unwrap_or_default();
            match wire.network.lateness() {
                Some(until) if !arrived.is_empty() => wire.arriving = Some((until, arrived.to_vec())),
                _ => return Poll::Ready(Ok(())),
            }
            buf.set_filled(before);
        }
        let Some((until, bytes)) = &mut wire.arriving else { return Poll::Ready(Ok(())) };
        ready!(until.as_mut().poll(cx));
        let fits = bytes.len().min(buf.remaining());
        buf.put_slice(bytes.get(..fits).unwrap_or_default());
        bytes.drain(..fits);
        if bytes.is_empty() {
            wire.arriving = None;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_admit(cx))?;
        let written = ready!(Pin::new(&mut self.inner).poll_write(cx, buf));
        self.sending = Sending::Idle;
        Poll::Ready(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
