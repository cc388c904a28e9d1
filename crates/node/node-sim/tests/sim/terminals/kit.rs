//! A simulated node with tenants, and terminals into it through a tunnel.

use std::{path::PathBuf, sync::Arc, time::Duration};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use bytes::BytesMut;
use chrono::TimeDelta;
use kernel::{
    Ambient,
    ids::{AllocationId, NodeId},
};
use node_agent::{
    drivers::{
        DevicesDriver as _, Done, Steps,
        simulated::{Machine, Profile as MachineProfile},
    },
    session::Log,
};
use node_proto::{
    Keyset, SignerKey, SignerState,
    catalog::{AccountSpec, Isolation, ProvisionUserInput, SlotDevices, VmProvisionInput},
    grant::{Grant, Owner, PtyAccess, PtyTarget, SignedGrant, Target, signing_bytes},
    text::Base64,
};
use node_sim::terminals::{Sandbox, SimShells, SimStreams};
use node_tunnel::{
    Gate, OpenError, Profile, Stream, Tunnel,
    frame::{Decoder, Frame},
    serve,
};

/// Nothing here takes longer.
pub const SOON: Duration = Duration::from_secs(30);
const KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1rbtDqO3zIp0Oj7bF2e5rWzNwyXcOkRmDqSbfGUpt9 someone@home";

struct AnySteps;

impl Steps for AnySteps {
    fn begin(&self, _: &'static str) -> Done<()> {
        Ok(())
    }
}

fn signer() -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[1; 32]).unwrap()
}

fn sign(grant: &Grant) -> SignedGrant {
    let payload = grant.canonical().unwrap();
    let signature = Base64(signer().sign(&signing_bytes(&payload)).as_ref().to_vec());
    SignedGrant { payload: Base64(payload), signer_version: grant.signer_version, signature }
}

/// A simulated machine, and what its agents share.
pub struct Node {
    id: NodeId,
    pub machine: Machine,
    pub shells: Arc<SimShells>,
}

/// One agent of the node, with a tunnel to it.
pub struct Agent {
    id: NodeId,
    pub streams: Arc<SimStreams>,
    tunnel: Tunnel,
}

impl Node {
    pub fn new(profile: MachineProfile) -> Self {
        Self::with(profile, Sandbox::default())
    }

    pub fn with(profile: MachineProfile, sandbox: Sandbox) -> Self {
        let id: NodeId = Ambient::system().id();
        let machine = Machine::new(profile, format!("sim-{profile}-1"), 1, Ambient::system());
        let shells = Arc::new(SimShells::new(id, machine.clone(), Arc::new(sandbox)));
        Self { id, machine, shells }
    }

    /// The tenant of the whole machine.
    pub fn lease_whole(&self) -> AllocationId {
        let owner: AllocationId = Ambient::system().id();
        let input = ProvisionUserInput {
            account: AccountSpec { username: "alice".to_owned(), uid: 20_001, gid: 20_001 },
            owner: owner.to_string(),
            shell: "/bin/bash".to_owned(),
            authorized_keys: Vec::new(),
            limits: Default::default(),
            isolation: Isolation::FullReimage,
        };
        self.machine.drivers().host.provision_user(&input, &AnySteps).unwrap();
        owner
    }

    /// A tenant of some slots.
    pub fn lease_slots(&self, indexes: &[usize]) -> AllocationId {
        let owner: AllocationId = Ambient::system().id();
        let candidates = self.machine.discover(&AnySteps).unwrap().candidates;
        let slot = |index: &usize| {
            let slot = candidates[*index].clone();
            SlotDevices {
                slot_index: slot.slot_index,
                pci_address: slot.pci_address,
                nvme_device: slot.nvme_device,
                fabric_vf: slot.fabric_vf,
                numa_node: slot.numa_node,
            }
        };
        let input = VmProvisionInput {
            owner: owner.to_string(),
            slots: indexes.iter().map(slot).collect(),
            vcpus: 8,
            memory_mib: 65_536,
            image: "ubuntu-24.04".to_owned(),
            username: "bob".to_owned(),
            authorized_keys: vec![KEY.to_owned()],
        };
        self.machine.drivers().slices.provision(&input, &AnySteps).unwrap();
        owner
    }

    pub async fn agent(&self) -> Agent {
        let ambient = Ambient::system();
        let public_key = Base64(signer().public_key().as_ref().to_vec());
        let signers = vec![SignerKey { signer_version: 3, state: SignerState::Active, public_key }];
        let keyset = Arc::new(Keyset { serial: 1, issued_at: ambient.now(), signers });
        let started_at = ambient.now();
        let gate = Arc::new(Gate::new(
            self.id,
            ambient.clone(),
            Box::new(move || keyset.clone()),
            Box::new(move || started_at),
        ));
        let log = Log::new(ambient, 64, str::to_owned);
        let streams = Arc::new(SimStreams::new(self.shells.clone(), log));
        let (agent, gateway) = tokio::io::duplex(64 * 1024);
        tokio::spawn(serve(agent, Profile::INTERACTIVE, gate, streams.clone()));
        let tunnel = Tunnel::start(gateway, Profile::INTERACTIVE).await.unwrap();
        Agent { id: self.id, streams, tunnel }
    }

    /// What the simulator keeps for an owner.
    pub fn room(&self, owner: AllocationId) -> Option<PathBuf> {
        let simulators = std::fs::read_dir(std::env::temp_dir()).unwrap().flatten();
        let name = format!("{}.{owner}", self.id);
        let mut rooms = simulators
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("gpuaas-node-sim-"))
            .map(|entry| entry.path().join(&name));
        rooms.find(|room| room.exists())
    }

    /// The processes of all sessions, by their environment.
    pub fn processes(&self) -> Vec<i32> {
        let marker = format!("GPUAAS_TERMINAL={}/", self.id);
        let pids = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let is_marked = |pid: &i32| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            String::from_utf8_lossy(&environment).contains(&marker)
        };
        pids.filter(is_marked).collect()
    }
}

impl Agent {
    /// An error is the code of the refusal.
    pub async fn open_as(&self, owner: Owner) -> Result<Terminal, String> {
        let ambient = Ambient::system();
        let grant = Grant {
            grant_id: ambient.id(),
            node_id: self.id,
            owner,
            target: Target::Pty(PtyTarget {
                may_start: true,
                session_id: ambient.id(),
                access: PtyAccess::Write,
                ttl_seconds: 3600,
                idle_seconds: 3600,
            }),
            actor: "user_1".to_owned(),
            single_use: true,
            issued_at: ambient.now() + TimeDelta::seconds(1),
            expires_at: ambient.now() + TimeDelta::minutes(5),
            correlation_id: ambient.uuid(),
            signer_version: 3,
        };
        Terminal::open(&self.tunnel, &grant).await
    }

    /// Opened, and at its first prompt.
    pub async fn open(&self, allocation_id: AllocationId) -> Terminal {
        let mut terminal = self.open_as(Owner::Allocation { allocation_id }).await.unwrap();
        terminal.read(|text| text.contains("$ ").then_some(())).await;
        terminal
    }

    pub async fn refused(&self, allocation_id: AllocationId) -> String {
        self.open_as(Owner::Allocation { allocation_id }).await.err().unwrap()
    }
}

pub struct Terminal {
    stream: Stream,
    decoder: Decoder,
    received: u64,
    pub text: String,
}

impl Terminal {
    async fn open(tunnel: &Tunnel, grant: &Grant) -> Result<Self, String> {
        let stream = match tunnel.open(&sign(grant)).await {
            Ok(stream) => stream,
            Err(OpenError::Refused(reason)) => return Err(reason),
            Err(other) => panic!("{other}"),
        };
        let mut terminal = Self { stream, decoder: Decoder::default(), received: 0, text: String::new() };
        terminal.send(Frame::Ack { sequence: 0 }).await;
        // Wide enough that no line is broken.
        terminal.send(Frame::Resize { columns: 1000, rows: 50 }).await;
        Ok(terminal)
    }

    async fn send(&mut self, frame: Frame) {
        let mut bytes = BytesMut::new();
        frame.encode(&mut bytes);
        tokio::time::timeout(SOON, self.stream.sender.send(bytes.freeze())).await.unwrap().unwrap();
    }

    pub async fn type_text(&mut self, text: &str) {
        self.send(Frame::Data(text.to_owned().into())).await;
    }

    /// Reads until `found` says what it found.
    pub async fn read<T>(&mut self, found: impl Fn(&str) -> Option<T>) -> T {
        loop {
            if let Some(found) = found(&self.text) {
                return found;
            }
            let frame = tokio::time::timeout(SOON, self.frame()).await;
            match frame.unwrap_or_else(|_| panic!("nothing more came after {:?}", self.text)) {
                Some(Frame::Data(bytes)) => {
                    self.received += bytes.len() as u64;
                    self.text.push_str(&String::from_utf8_lossy(&bytes));
                    self.send(Frame::Ack { sequence: self.received }).await;
                }
                Some(Frame::Ack { .. }) => {}
                other => panic!("{other:?} after {:?}", self.text),
            }
        }
    }

    async fn frame(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.decoder.frame().unwrap() {
                return Some(frame);
            }
            let bytes = self.stream.receiver.next().await.unwrap()?;
            self.stream.receiver.consumed(bytes.len()).unwrap();
            self.decoder.push(&bytes);
        }
    }

    /// Waits for the end that the node declares.
    pub async fn closed(&mut self) -> Frame {
        let last = async {
            loop {
                match self.frame().await {
                    Some(Frame::Data(_) | Frame::Ack { .. }) => {}
                    other => return other.expect("a last frame"),
                }
            }
        };
        tokio::time::timeout(SOON, last).await.expect("it ends")
    }

    pub async fn prints(&mut self, command: &str) -> String {
        self.run(command).await.0
    }

    /// What a command prints, and its status.
    pub async fn run(&mut self, command: &str) -> (String, i32) {
        self.text.clear();
        // The marker is not in what is typed, which comes back too.
        self.type_text(&format!("{command}; echo \"@\"\"@$?@\"\n")).await;
        self.read(|text| {
            let (before, after) = text.split_once("@@")?;
            let (status, prompt) = after.split_once('@')?;
            // What is typed before the prompt would come back twice.
            let status = prompt.contains("$ ").then(|| status.parse().ok())??;
            let before = before.replace("\u{1b}[?2004h", "").replace("\u{1b}[?2004l", "").replace('\r', "");
            let printed = before.split_once(&format!("{command};"))?.1.split_once('\n')?.1;
            Some((printed.trim_end().to_owned(), status))
        })
        .await
    }
}
