//! The machine's power: which boot this is, and the next one.

use std::time::Duration;

use node_proto::contract::FailureCode;

use super::{Done, DriverError, PowerDriver, files::read_bounded};
use crate::{
    config::{Programs, Roots},
    exec::Run,
};

const REASON_CHARS: usize = 120;

pub struct RealPower {
    roots: Roots,
    programs: Programs,
}

impl RealPower {
    pub fn new(roots: Roots, programs: Programs) -> Self {
        Self { roots, programs }
    }
}

impl PowerDriver for RealPower {
    fn boot_id(&self) -> String {
        let path = self.roots.proc.join("sys/kernel/random/boot_id");
        let text =
            read_bounded(&path, 128).ok().map(|(bytes, _)| String::from_utf8_lossy(&bytes).trim().to_owned());
        text.filter(|id| !id.is_empty()).unwrap_or_else(|| "unknown".to_owned())
    }

    fn reboot(&self, reason: &str) -> Done<()> {
        let Some(systemctl) = &self.programs.systemctl else {
            return Err(DriverError::new(
                FailureCode::Unavailable,
                "no systemctl is configured, so nothing here can reboot",
            ));
        };
        let plain = reason.chars().filter(|c| !c.is_control()).take(REASON_CHARS).collect::<String>();
        Run::new(systemctl)
            .args(["--no-block", "--no-wall"])
            .arg(format!("--message=gpuaas: {plain}"))
            .arg("reboot")
            .timeout(Duration::from_secs(20))
            .succeed()?;
        Ok(())
    }
}
