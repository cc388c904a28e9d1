//! SQL of the issuer; runs as `gpuaas_system`, which alone reaches these tables.

pub(super) mod accounts;
pub(super) mod browsers;
pub(super) mod codes;
pub(super) mod devices;
pub(super) mod guesses;
pub(super) mod keys;
pub(super) mod tokens;
