//! Handshakes between real TLS ends, in memory.

use std::sync::Arc;

use chrono::TimeDelta;
use rcgen::KeyPair;
use rustls::{
    ClientConfig, ClientConnection, Error, RootCertStore, ServerConfig, ServerConnection,
    SupportedProtocolVersion,
    crypto::aws_lc_rs::{default_provider, sign::any_supported_type},
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, UnixTime},
    server::ParsedCertificate,
    sign::{CertifiedKey, SingleCertAndKey},
    time_provider::TimeProvider,
    version::{TLS12, TLS13},
};
use trust::{
    ca::{Authority, Serial, Validity},
    peer::{PeerVerifier, ProofOfKey},
};

use super::kit::{DOMAIN, NODE, ambient, authority, chain, node_certificate, now};

#[derive(Debug)]
struct Then;

impl TimeProvider for Then {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(now().timestamp()).unwrap();
        Some(UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds)))
    }
}

fn server(authority: &Authority) -> Arc<ServerConfig> {
    let validity = Validity { not_before: now(), not_after: now() + TimeDelta::days(7) };
    let names = ["nodes.example.org".to_owned()];
    let server = authority.issue_server(&names, &[], Serial::random(&ambient()), validity).unwrap();
    let key = server.certified_key().unwrap();
    let config = ServerConfig::builder_with_details(default_provider().into(), Arc::new(Then))
        .with_protocol_versions(&[&TLS12, &TLS13])
        .unwrap()
        .with_client_cert_verifier(ProofOfKey::new())
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(key)));
    Arc::new(config)
}

fn client(
    authority: &Authority,
    version: &'static SupportedProtocolVersion,
    identity: Option<(Vec<CertificateDer<'static>>, &KeyPair)>,
) -> ClientConnection {
    let mut roots = RootCertStore::empty();
    roots.add(authority.root().der).unwrap();
    let config = ClientConfig::builder_with_details(default_provider().into(), Arc::new(Then))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots);
    let config = match identity {
        None => config.with_no_client_auth(),
        Some((chain, key)) => {
            let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
            // Unlike the usual way, this does not check that key and certificate fit.
            let key = CertifiedKey::new(chain, any_supported_type(&key).unwrap());
            config.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(key)))
        }
    };
    ClientConnection::new(Arc::new(config), "nodes.example.org".try_into().unwrap()).unwrap()
}

/// What the server has of its peer once both are done.
fn shake_hands(
    server: Arc<ServerConfig>,
    mut client: ClientConnection,
) -> Result<Option<Vec<CertificateDer<'static>>>, Error> {
    let mut server = ServerConnection::new(server)?;
    for _ in 0..10 {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            server.read_tls(&mut rest).unwrap();
            server.process_new_packets()?;
        }
        let mut bytes = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            client.process_new_packets()?;
        }
    }
    assert!(!server.is_handshaking() && !client.is_handshaking());
    Ok(server.peer_certificates().map(<[_]>::to_vec))
}

#[test]
fn a_node_that_holds_its_key_is_known_and_one_without_certificate_is_let_in_unknown() {
    let authority = authority();
    let verifier = PeerVerifier::new(DOMAIN, &[authority.root()]).unwrap();
    for version in [&TLS12, &TLS13] {
        let (issued, key) = node_certificate(&authority);
        let client_with = client(&authority, version, Some((chain(&issued.chain_pem), &key)));
        let peer = shake_hands(server(&authority), client_with).unwrap().unwrap();
        assert_eq!(verifier.verify(&peer, now()).unwrap().node_id.to_string(), NODE);
        assert_eq!(shake_hands(server(&authority), client(&authority, version, None)), Ok(None));
    }
}

#[test]
fn a_certificate_without_its_key_does_not_get_through_the_handshake() {
    let authority = authority();
    for version in [&TLS12, &TLS13] {
        let (stolen, _) = node_certificate(&authority);
        let own = KeyPair::generate().unwrap();
        let thief = client(&authority, version, Some((chain(&stolen.chain_pem), &own)));
        let refused = shake_hands(server(&authority), thief).unwrap_err();
        assert!(matches!(refused, Error::InvalidCertificate(_)), "{refused}");
    }
}

#[test]
fn a_foreign_certificate_gets_through_the_handshake_and_no_further() {
    let (ours, theirs) = (authority(), authority());
    let (issued, key) = node_certificate(&theirs);
    let stranger = client(&ours, &TLS13, Some((chain(&issued.chain_pem), &key)));
    let peer = shake_hands(server(&ours), stranger).unwrap().unwrap();
    let verifier = PeerVerifier::new(DOMAIN, &[ours.root()]).unwrap();
    assert!(verifier.verify(&peer, now()).is_err());
}

#[test]
fn a_chain_that_is_too_long_ends_the_handshake() {
    let authority = authority();
    let (issued, key) = node_certificate(&authority);
    let one = chain(&issued.chain_pem);
    let long = [&one[..1], &vec![one[1].clone(); 4]].concat();
    assert!(ParsedCertificate::try_from(&long[0]).is_ok());
    let talker = client(&authority, &TLS13, Some((long, &key)));
    assert!(shake_hands(server(&authority), talker).is_err());
}
