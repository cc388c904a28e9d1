//! The drivers of a real machine, put together.

use std::sync::Arc;

use kernel::Ambient;

use super::{
    Drivers,
    devices::RealDevices,
    diag::RealDiag,
    gpu::RealGpu,
    host::RealHost,
    hypervisor::{FileLeases, NoHypervisor, Slices},
    power::RealPower,
};
use crate::config::Config;

pub fn drivers(ambient: Ambient, config: &Config) -> Drivers {
    let Config { state_dir, roots, programs, .. } = config;
    let gpu = Arc::new(RealGpu::new(ambient.clone(), roots.clone(), programs.clone(), state_dir));
    Drivers {
        host: Box::new(RealHost::new(roots.clone(), programs.clone(), state_dir)),
        devices: Box::new(RealDevices::new(roots.clone())),
        diag: Box::new(RealDiag::new(
            ambient.clone(),
            roots.clone(),
            programs.clone(),
            state_dir.clone(),
            gpu.clone(),
        )),
        gpu: Box::new(gpu),
        power: Box::new(RealPower::new(roots.clone(), programs.clone())),
        slices: Slices::new(Box::new(NoHypervisor), Box::new(FileLeases::new(state_dir))),
        ambient,
    }
}
