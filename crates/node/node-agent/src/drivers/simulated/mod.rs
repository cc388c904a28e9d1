//! Drivers of a machine that does not exist.
//!
//! A [`Machine`] is what a simulated node is made of: its profile, its accounts, its guests, its boots. It answers every
//! driver trait as a real machine of that profile would, instantly and without touching anything outside
//! itself. It outlives the agent that uses it, as hardware does: an agent that crashes and comes back finds the
//! accounts and guests that it made; kept in a file, it outlives the process too. What it says depends on its
//! profile, name and number alone, so that a run can be repeated. It keeps little in memory: descriptions are made when somebody asks.

mod devices;
mod diag;
mod host;
mod hypervisor;
mod kept;
mod profile;
mod tenants;

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use kernel::Ambient;
use node_proto::contract::Finding;
use serde::{Deserialize, Serialize};

pub use profile::Profile;
pub use tenants::{Tenant, TenantGpu};

use crate::drivers::{Done, DriverError, Drivers, PowerDriver, hypervisor::Slices};

/// So many unreported findings are kept; the oldest make room.
const FINDINGS_KEPT: usize = 16;

/// One simulated machine. Cheap to clone: all clones are the same machine.
#[derive(Clone)]
pub struct Machine(Arc<Parts>);

struct Parts {
    profile: Profile,
    hostname: String,
    number: u64,
    ambient: Ambient,
    changing: Mutex<Changing>,
    file: Option<PathBuf>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Changing {
    accounts: BTreeMap<String, host::Account>,
    guests: hypervisor::Guests,
    findings: Vec<Finding>,
    boots: u32,
    disk_full: bool,
    drained: bool,
}

impl Machine {
    /// `number` tells machines of one fleet apart; it seeds everything that differs between them.
    pub fn new(profile: Profile, hostname: impl Into<String>, number: u64, ambient: Ambient) -> Self {
        Self::with(profile, hostname.into(), number, ambient, Changing::default(), None)
    }

    /// The same, as the file has it; there is no need for one yet.
    pub fn open(
        profile: Profile,
        hostname: impl Into<String>,
        number: u64,
        ambient: Ambient,
        file: &Path,
    ) -> io::Result<Self> {
        let changing = kept::read(file)?;
        Ok(Self::with(profile, hostname.into(), number, ambient, changing, Some(file.to_owned())))
    }

    fn with(
        profile: Profile,
        hostname: String,
        number: u64,
        ambient: Ambient,
        changing: Changing,
        file: Option<PathBuf>,
    ) -> Self {
        Self(Arc::new(Parts { profile, hostname, number, ambient, changing: Mutex::new(changing), file }))
    }

    pub fn profile(&self) -> Profile {
        self.0.profile
    }

    pub fn hostname(&self) -> &str {
        &self.0.hostname
    }

    /// This machine behind every driver trait.
    pub fn drivers(&self) -> Drivers {
        Drivers {
            ambient: self.0.ambient.clone(),
            host: Box::new(self.clone()),
            devices: Box::new(self.clone()),
            gpu: Box::new(self.clone()),
            diag: Box::new(self.clone()),
            power: Box::new(self.clone()),
            slices: Slices::new(Box::new(self.clone()), Box::new(self.clone())),
        }
    }

    /// Something happens to the machine's health; the agent reports it with its next heartbeat.
    pub fn suffer(&self, finding: Finding) {
        let mut changing = self.changing();
        if changing.findings.len() == FINDINGS_KEPT {
            changing.findings.remove(0);
        }
        changing.findings.push(finding);
    }

    /// While true, nothing new can be written on it.
    pub fn fill_disk(&self, full: bool) {
        self.changing().disk_full = full;
    }

    /// Machines go down without a word: this one is another boot from now on.
    pub fn restart(&self) {
        self.changing().boots += 1;
    }

    /// Whether the agent on it takes new tenants.
    pub fn drained(&self) -> bool {
        self.changing().drained
    }

    pub fn drain(&self, drained: bool) {
        self.changing().drained = drained;
    }

    fn changing(&self) -> kept::StateGuard<'_> {
        // No call in between can leave it half changed.
        let held = self.0.changing.lock().unwrap_or_else(PoisonError::into_inner);
        kept::StateGuard::new(held, self.0.file.as_deref())
    }

    fn needs_disk(&self) -> Done<()> {
        if self.changing().disk_full {
            Err(DriverError::failed("no space left on the device"))
        } else {
            Ok(())
        }
    }

    /// A number below `bound` that is always the same for this machine and this question.
    fn trait_below(&self, question: u64, bound: u64) -> u64 {
        mix(self.0.number ^ question.rotate_left(32)) % bound.max(1)
    }
}

impl PowerDriver for Machine {
    fn boot_id(&self) -> String {
        let boots = u64::from(self.changing().boots);
        let (high, low) = (mix(self.0.number), mix(self.0.number ^ (boots << 32) ^ 0xb007));
        let (a, b, c) = (high >> 32, high >> 16 & 0xffff, high & 0xfff);
        let (d, e) = (0x8000 | low >> 50, low & 0xffff_ffff_ffff);
        format!("{a:08x}-{b:04x}-4{c:03x}-{d:04x}-{e:012x}")
    }

    fn reboot(&self, _reason: &str) -> Done<()> {
        self.restart();
        Ok(())
    }
}

/// Spreads a number over all 64 bits; neighbours end far apart.
pub fn mix(number: u64) -> u64 {
    let mut x = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
