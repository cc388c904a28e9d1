//! What the tests share: a clock to set, OpenSSL, certificates for all occasions.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use chrono::{DateTime, TimeDelta, Utc};
use kernel::{Ambient, ManualClock, Secret, ids::AuthorityId};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use tempfile::TempDir;
use trust::ca::{Authority, Issued, Serial, sealer};

pub const DOMAIN: &str = "gpuaas.test";

pub fn now() -> DateTime<Utc> {
    "2031-05-06T07:08:09Z".parse().unwrap()
}

pub fn ambient_at(at: DateTime<Utc>) -> Ambient {
    ManualClock::starting_at(at).ambient()
}

pub fn ambient() -> Ambient {
    ambient_at(now())
}

pub fn authority() -> Authority {
    let ambient = ambient();
    Authority::generate(&ambient, DOMAIN, ambient.id::<AuthorityId>()).unwrap()
}

pub fn master_sealer(byte: u8) -> trust::Sealer {
    sealer(&Secret::new([byte; 32])).unwrap()
}

/// A request for nothing in particular, with its key.
pub fn request() -> (String, KeyPair) {
    let key = KeyPair::generate().unwrap();
    let csr = CertificateParams::default().serialize_request(&key).unwrap();
    (csr.pem().unwrap(), key)
}

pub fn node_uri(name: &str) -> String {
    format!("spiffe://{DOMAIN}/node/{name}")
}

pub const NODE: &str = "node_0198c0de0000700080000000000000ff";

/// A certificate of [`NODE`] for a day, with its key.
pub fn node_certificate(authority: &Authority) -> (Issued, KeyPair) {
    let (csr, key) = request();
    let issued = authority
        .issue_node(&csr, &node_uri(NODE), Serial::random(&ambient()), now(), now() + TimeDelta::days(1))
        .unwrap();
    (issued, key)
}

pub fn chain(pem: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).map(Result::unwrap).collect()
}

/// A directory to hand files to OpenSSL in.
pub struct Desk(TempDir);

impl Desk {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    pub fn openssl(&self, arguments: &[&str]) -> Result<String, String> {
        openssl(self.0.path(), arguments)
    }
}

/// What it printed, or how it complained.
// The one place where these tests start a program.
#[allow(clippy::disallowed_methods)]
fn openssl(directory: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("openssl")
        .args(arguments)
        .current_dir(directory)
        .output()
        .expect("openssl is not installed: run scripts/tools.sh openssl");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    if output.status.success() { Ok(out) } else { Err(out + &err) }
}
