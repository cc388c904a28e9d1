//! A simulated node with tenants, and terminals into it through a tunnel.

use std::{path::PathBuf, sync::Arc};

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
    catalog::{AccountSpec, Isolation, ProvisionUserInput, SlotDevices, VmProvisionInput},
    grant::{Grant, Owner},
};
use node_sim::terminals::{Sandbox, SimShells, SimStreams};
use node_tunnel::{Tunnel, frame::Frame};

pub use super::terminal_kit::{SOON, Terminal};
use super::terminal_kit::{grant_of, tunnel};

const KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1rbtDqO3zIp0Oj7bF2e5rWzNwyXcOkRmDqSbfGUpt9 someone@home";

struct AnySteps;

impl Steps for AnySteps {
    fn begin(&self, _: &'static str) -> Done<()> {
        Ok(())
    }
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
        let log = Log::new(Ambient::system(), 64, str::to_owned);
        let streams = Arc::new(SimStreams::new(self.shells.clone(), log));
        let tunnel = tunnel(self.id, streams.clone()).await;
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
        let grant = Grant { node_id: self.id, ..grant_of(owner) };
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

impl Terminal {
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
}
