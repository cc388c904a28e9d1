//! Fetching a program for a handler, which runs on a thread of its own.

use std::{fs::File, io::Write as _, path::Path, sync::Arc};

use tokio::runtime::Handle;

use crate::{
    client::Client,
    drivers::{Done, DriverError},
    executor::ProgramSource,
    transport::Connect,
};

pub(super) struct Fetcher<C> {
    client: Arc<Client<C>>,
    runtime: Option<Handle>,
}

impl<C> Fetcher<C> {
    pub(super) fn new(client: Arc<Client<C>>) -> Self {
        Self { client, runtime: Handle::try_current().ok() }
    }
}

impl<C: Connect> ProgramSource for Fetcher<C> {
    fn fetch(&self, sha256: &str, size_bytes: u64, to: &Path) -> Done<()> {
        let runtime = self.runtime.as_ref().ok_or_else(|| DriverError::failed("the session has ended"))?;
        let failed = |error: std::io::Error| DriverError::failed(format!("{}: {error}", to.display()));
        let mut file = File::create(to).map_err(failed)?;
        let mut take = |piece: &[u8]| file.write_all(piece);
        runtime
            .block_on(self.client.program(sha256, size_bytes, &mut take))
            .map_err(|error| DriverError::failed(format!("the program cannot be fetched: {error}")))?;
        file.sync_all().map_err(failed)
    }
}
