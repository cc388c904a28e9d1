use chrono::{DateTime, TimeDelta, Utc};
use kernel::ids::{AuthorityId, NodeId};
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};
use rustls::pki_types::CertificateDer;
use trust::{
    ca::{Authority, Root, Serial, Validity},
    peer::{CHAIN_BYTES, PeerRefusal, PeerVerifier},
};

use super::kit::{
    DOMAIN, NODE, ambient, ambient_at, authority, chain, node_certificate, node_uri, now, request,
};

fn verifier(roots: &[&Authority]) -> PeerVerifier {
    PeerVerifier::new(DOMAIN, &roots.iter().map(|a| a.root()).collect::<Vec<_>>()).unwrap()
}

fn refusal(verifier: &PeerVerifier, chain: &[CertificateDer<'_>], at: DateTime<Utc>) -> PeerRefusal {
    verifier.verify(chain, at).unwrap_err()
}

#[test]
fn a_chain_to_any_root_in_force_names_its_node_and_its_authority() {
    let (old, new) = (authority(), authority());
    let both = verifier(&[&old, &new]);
    for authority in [&old, &new] {
        let (issued, _) = node_certificate(authority);
        let peer = both.verify(&chain(&issued.chain_pem), now()).unwrap();
        assert_eq!(peer.node_id, NODE.parse::<NodeId>().unwrap());
        assert_eq!(peer.spiffe_id, node_uri(NODE));
        assert_eq!((peer.serial, peer.not_after), (issued.serial, issued.validity.not_after));
        assert_eq!(peer.authority_id, authority.id());
    }
    assert_eq!(both.authorities(), [old.id(), new.id()]);
}

#[test]
fn a_certificate_of_an_authority_that_is_not_in_force_is_refused_whatever_it_says() {
    let (ours, theirs) = (authority(), authority());
    let (issued, _) = node_certificate(&theirs);
    let chain = chain(&issued.chain_pem);
    let unknown = PeerRefusal::UnknownAuthority;
    assert_eq!(refusal(&verifier(&[&ours]), &chain, now()), unknown);
    assert_eq!(refusal(&verifier(&[]), &chain, now()), unknown);
    assert_eq!(refusal(&verifier(&[&ours]), &chain, now() + TimeDelta::days(9)), unknown, "expired as well");
    assert_eq!(refusal(&verifier(&[&theirs]), &chain[..1], now()), unknown, "without the intermediate");
    // The right intermediate does not help a foreign certificate.
    let (own, _) = node_certificate(&ours);
    let mixed = [chain[0].clone(), self::chain(&own.chain_pem)[1].clone()];
    assert_eq!(refusal(&verifier(&[&ours]), &mixed, now()), unknown);
}

#[test]
fn an_altered_certificate_is_refused_at_every_byte() {
    let authority = authority();
    let (issued, _) = node_certificate(&authority);
    let (verifier, chain) = (verifier(&[&authority]), chain(&issued.chain_pem));
    for at in 0..chain[0].len() {
        let mut altered = chain[0].to_vec();
        altered[at] ^= 1;
        let altered = [CertificateDer::from(altered), chain[1].clone()];
        assert!(verifier.verify(&altered, now()).is_err(), "byte {at}");
    }
}

#[test]
fn time_is_checked_to_the_second_at_both_ends() {
    let authority = authority();
    let (issued, _) = node_certificate(&authority);
    let (verifier, chain) = (verifier(&[&authority]), chain(&issued.chain_pem));
    let end = issued.validity.not_after;
    assert!(verifier.verify(&chain, end).is_ok());
    assert_eq!(refusal(&verifier, &chain, end + TimeDelta::seconds(1)), PeerRefusal::Expired);
    assert_eq!(refusal(&verifier, &chain, now() - TimeDelta::seconds(1)), PeerRefusal::NotYetValid);
}

#[test]
fn what_is_not_for_clients_or_names_no_node_of_ours_is_refused() {
    let authority = authority();
    let verifier = verifier(&[&authority]);
    let validity = Validity { not_before: now(), not_after: now() + TimeDelta::days(1) };
    let server = authority
        .issue_server(&["nodes.example.org".to_owned()], &[], Serial::random(&ambient()), validity)
        .unwrap();
    assert_eq!(refusal(&verifier, &server.chain, now()), PeerRefusal::WrongUsage);
    let intermediate = chain(&authority.issuing_pem());
    assert_eq!(refusal(&verifier, &intermediate, now()), PeerRefusal::WrongUsage);
    for (uri, expected) in [
        (format!("spiffe://elsewhere.test/node/{NODE}"), PeerRefusal::ForeignDomain),
        (format!("spiffe://{DOMAIN}.elsewhere.test/node/{NODE}"), PeerRefusal::ForeignDomain),
        (format!("spiffe://{DOMAIN}/gateway/{NODE}"), PeerRefusal::NoName),
        (node_uri("root"), PeerRefusal::NoName),
        (node_uri(&format!("{NODE}/..")), PeerRefusal::NoName),
        (node_uri(&NODE.to_uppercase()), PeerRefusal::NoName),
    ] {
        let (csr, _) = request();
        let issued = authority
            .issue_node(&csr, &uri, Serial::random(&ambient()), validity.not_before, validity.not_after)
            .unwrap();
        assert_eq!(refusal(&verifier, &chain(&issued.chain_pem), now()), expected, "{uri}");
    }
}

#[test]
fn what_cannot_be_read_or_is_too_much_is_refused_unread() {
    let authority = authority();
    let (issued, _) = node_certificate(&authority);
    let (verifier, chain) = (verifier(&[&authority]), chain(&issued.chain_pem));
    let padded = |count: usize| [&chain[..1], &vec![chain[1].clone(); count]].concat();
    assert!(verifier.verify(&padded(3), now()).is_ok());
    let fat = [chain[0].clone(), chain[1].clone(), CertificateDer::from(vec![0x30; CHAIN_BYTES])];
    let trailing = CertificateDer::from([&chain[0][..], &[0]].concat());
    for bad in
        [&[][..], &padded(4), &fat, &[CertificateDer::from(vec![1, 2, 3])], &[trailing, chain[1].clone()]]
    {
        assert_eq!(refusal(&verifier, bad, now()), PeerRefusal::Malformed);
    }
}

/// A root made elsewhere, to sign what our authority never would.
struct Elsewhere {
    params: CertificateParams,
    key: KeyPair,
    root: Root,
}

impl Elsewhere {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let der = params.self_signed(&key).unwrap().der().clone();
        Self { params, key, root: Root { authority_id: ambient().id::<AuthorityId>(), der } }
    }

    fn verdict(&self, change: impl FnOnce(&mut CertificateParams)) -> Result<NodeId, PeerRefusal> {
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![SanType::URI(node_uri(NODE).try_into().unwrap())];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        let issuer = Issuer::from_params(&self.params, &self.key);
        let leaf = params.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap();
        let verifier = PeerVerifier::new(DOMAIN, std::slice::from_ref(&self.root)).unwrap();
        verifier.verify(&[leaf.der().clone()], now()).map(|peer| peer.node_id)
    }
}

#[test]
fn usage_and_name_must_be_stated_and_the_name_must_be_one() {
    let ca = Elsewhere::new();
    let uri = |name: &str| SanType::URI(node_uri(name).try_into().unwrap());
    assert_eq!(ca.verdict(|_| ()), Ok(NODE.parse().unwrap()));
    let dns = SanType::DnsName("x.example.org".to_owned().try_into().unwrap());
    assert!(
        ca.verdict(|p| p.subject_alt_names.push(dns.clone())).is_ok(),
        "other kinds of names do not matter"
    );
    type Change<'a> = &'a dyn Fn(&mut CertificateParams);
    let wrong_usage: [Change; 5] = [
        &|p| p.extended_key_usages.clear(),
        &|p| p.extended_key_usages = vec![ExtendedKeyUsagePurpose::Any],
        &|p| p.key_usages.clear(),
        &|p| p.key_usages = vec![KeyUsagePurpose::KeyAgreement],
        &|p| p.is_ca = IsCa::Ca(BasicConstraints::Unconstrained),
    ];
    let no_name: [Change; 3] =
        [&|p| p.subject_alt_names.clear(), &|p| p.subject_alt_names = vec![dns.clone()], &|p| {
            p.subject_alt_names.push(uri(NODE))
        }];
    for (changes, expected) in [(&wrong_usage[..], PeerRefusal::WrongUsage), (&no_name, PeerRefusal::NoName)]
    {
        for (at, change) in changes.iter().enumerate() {
            assert_eq!(ca.verdict(change), Err(expected), "{at}");
        }
    }
}

#[test]
fn when_the_intermediate_has_ended_its_certificates_have_too() {
    let long_ago = now() - TimeDelta::days(3 * 366);
    let ambient = ambient_at(long_ago);
    let authority = Authority::generate(&ambient, DOMAIN, ambient.id()).unwrap();
    let (csr, _) = request();
    let issued = authority
        .issue_node(
            &csr,
            &node_uri(NODE),
            Serial::random(&ambient),
            long_ago,
            long_ago + TimeDelta::days(9999),
        )
        .unwrap();
    let (verifier, chain) = (verifier(&[&authority]), chain(&issued.chain_pem));
    assert!(verifier.verify(&chain, long_ago + TimeDelta::days(700)).is_ok());
    assert_eq!(refusal(&verifier, &chain, now()), PeerRefusal::Expired);
}
