use chrono::TimeDelta;
use kernel::ids::AuthorityId;
use rcgen::{CertificateParams, KeyPair};
use trust::ca::{Authority, CaError, CertificateIssuer as _, Embedded, Profile, Serial, Validity};

use super::kit::{
    Desk, NODE, ambient, ambient_at, authority, chain, master_sealer, node_certificate, node_uri, now,
    request,
};

fn epoch(at: chrono::DateTime<chrono::Utc>) -> String {
    at.timestamp().to_string()
}

/// The certificate for OpenSSL, beside its intermediate and root.
fn lay_out(desk: &Desk, authority: &Authority, chain_pem: &str) {
    let parts: Vec<&str> = chain_pem.split_inclusive("-----END CERTIFICATE-----\n").collect();
    assert_eq!(parts.len(), 2);
    desk.write("leaf.pem", parts[0]);
    desk.write("issuing.pem", parts[1]);
    desk.write("root.pem", &authority.root_pem());
}

fn verify(desk: &Desk, at: &str, more: &[&str]) -> Result<String, String> {
    let mut arguments =
        vec!["verify", "-x509_strict", "-attime", at, "-CAfile", "root.pem", "-untrusted", "issuing.pem"];
    arguments.extend(more);
    arguments.push("leaf.pem");
    desk.openssl(&arguments)
}

#[test]
fn openssl_accepts_a_node_certificate_for_clients_only_and_only_while_it_is_valid() {
    let (desk, authority) = (Desk::new(), authority());
    let (issued, _) = node_certificate(&authority);
    lay_out(&desk, &authority, &issued.chain_pem);
    let at = epoch(now() + TimeDelta::hours(1));
    verify(&desk, &at, &["-purpose", "sslclient"]).unwrap();
    let refused = verify(&desk, &at, &["-purpose", "sslserver"]).unwrap_err();
    assert!(refused.contains("purpose"), "{refused}");
    let refused = verify(&desk, &epoch(now() + TimeDelta::days(2)), &[]).unwrap_err();
    assert!(refused.contains("expired"), "{refused}");
    let text = desk.openssl(&["x509", "-in", "leaf.pem", "-noout", "-text"]).unwrap();
    for expected in [
        "CA:FALSE".to_owned(),
        "Digital Signature\n".to_owned(),
        "TLS Web Client Authentication\n".to_owned(),
        format!("URI:{}\n", node_uri(NODE)),
        "Not Before: May  6 07:08:09 2031 GMT".to_owned(),
        "Not After : May  7 07:08:09 2031 GMT".to_owned(),
    ] {
        assert!(text.contains(&expected), "{expected} is not in {text}");
    }
    let serial = desk.openssl(&["x509", "-in", "leaf.pem", "-noout", "-serial"]).unwrap();
    assert_eq!(serial.trim().to_lowercase(), format!("serial={}", issued.serial));
    let print = desk.openssl(&["x509", "-in", "leaf.pem", "-noout", "-fingerprint", "-sha256"]).unwrap();
    let print = print.trim().rsplit('=').next().unwrap().replace(':', "").to_lowercase();
    assert_eq!(print, issued.fingerprint.iter().map(|b| format!("{b:02x}")).collect::<String>());
}

#[test]
fn openssl_sees_a_root_for_ten_years_and_an_intermediate_for_two_that_has_no_authority_below_it() {
    let (desk, authority) = (Desk::new(), authority());
    desk.write("root.pem", &authority.root_pem());
    desk.write("issuing.pem", &authority.issuing_pem());
    let root = desk.openssl(&["x509", "-in", "root.pem", "-noout", "-text"]).unwrap();
    let issuing = desk.openssl(&["x509", "-in", "issuing.pem", "-noout", "-text"]).unwrap();
    assert!(
        root.contains("CA:TRUE, pathlen:1") && root.contains("Not After : May  6 06:08:09 2041"),
        "{root}"
    );
    assert!(
        issuing.contains("CA:TRUE, pathlen:0") && issuing.contains("Not After : May  6 06:08:09 2033"),
        "{issuing}"
    );
    for text in [&root, &issuing] {
        assert!(text.contains("Certificate Sign, CRL Sign") && text.contains("prime256v1"), "{text}");
    }
    let at = epoch(now());
    desk.openssl(&["verify", "-x509_strict", "-attime", &at, "-CAfile", "root.pem", "issuing.pem"]).unwrap();
}

#[test]
fn openssl_accepts_the_listeners_certificate_for_its_names_and_addresses_only() {
    let (desk, authority) = (Desk::new(), authority());
    let validity = Validity { not_before: now(), not_after: now() + TimeDelta::days(7) };
    let names = ["nodes.example.org".to_owned()];
    let addresses = ["192.0.2.7".parse().unwrap(), "2001:db8::7".parse().unwrap()];
    let server = authority.issue_server(&names, &addresses, Serial::random(&ambient()), validity).unwrap();
    lay_out(&desk, &authority, &server.issued.chain_pem);
    assert_eq!(server.chain.len(), 3);
    assert_eq!(server.chain[2], authority.root().der, "a joining node finds the root that it pins");
    server.certified_key().unwrap().keys_match().unwrap();
    let at = epoch(now());
    for good in [
        ["-verify_hostname", "nodes.example.org"],
        ["-verify_ip", "192.0.2.7"],
        ["-verify_ip", "2001:db8::7"],
    ] {
        verify(&desk, &at, &["-purpose", "sslserver", good[0], good[1]]).unwrap();
    }
    for bad in
        [["-verify_hostname", "other.example.org"], ["-verify_ip", "192.0.2.8"], ["-purpose", "sslclient"]]
    {
        assert!(verify(&desk, &at, &bad).is_err(), "{bad:?}");
    }
    for bad in ["", "a b", "ü.example.org"] {
        let refused = authority.issue_server(&[bad.to_owned()], &[], Serial::random(&ambient()), validity);
        assert!(matches!(refused, Err(CaError::Name(_))), "{bad}");
    }
    assert!(authority.issue_server(&[], &[], Serial::random(&ambient()), validity).is_err());
}

#[test]
fn a_request_for_another_name_and_more_rights_gets_neither() {
    let (desk, authority) = (Desk::new(), authority());
    desk.openssl(&[
        "req",
        "-new",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-keyout",
        "key.pem",
        "-out",
        "csr.pem",
        "-subj",
        "/CN=admin",
        "-addext",
        "basicConstraints=critical,CA:TRUE",
        "-addext",
        "keyUsage=keyCertSign",
        "-addext",
        "extendedKeyUsage=serverAuth,codeSigning",
        "-addext",
        &format!("subjectAltName=URI:{},DNS:nodes.example.org", node_uri("node_other")),
        "-addext",
        "1.2.3.4=ASN1:UTF8String:surprise",
    ])
    .unwrap();
    let csr = std::fs::read_to_string(desk.path("csr.pem")).unwrap();
    let issued = authority
        .issue_node(&csr, &node_uri(NODE), Serial::random(&ambient()), now(), now() + TimeDelta::days(1))
        .unwrap();
    lay_out(&desk, &authority, &issued.chain_pem);
    verify(&desk, &epoch(now()), &["-purpose", "sslclient"]).unwrap();
    let text = desk.openssl(&["x509", "-in", "leaf.pem", "-noout", "-text"]).unwrap();
    assert!(text.contains(&format!("URI:{}\n", node_uri(NODE))), "{text}");
    for unwanted in [
        "admin",
        "node_other",
        "CA:TRUE",
        "Server",
        "Code Signing",
        "nodes.example.org",
        "surprise",
        "1.2.3.4",
    ] {
        assert!(!text.contains(unwanted), "{unwanted} is in {text}");
    }
    // It is the request's key all the same.
    let of_leaf = desk.openssl(&["x509", "-in", "leaf.pem", "-noout", "-pubkey"]).unwrap();
    assert_eq!(of_leaf, desk.openssl(&["pkey", "-in", "key.pem", "-pubout"]).unwrap());
}

#[test]
fn ed25519_is_taken_and_other_kinds_of_keys_are_refused_with_what_to_use() {
    let (desk, authority) = (Desk::new(), authority());
    let issue = |desk: &Desk| {
        let csr = std::fs::read_to_string(desk.path("csr.pem")).unwrap();
        authority.issue_node(
            &csr,
            &node_uri(NODE),
            Serial::random(&ambient()),
            now(),
            now() + TimeDelta::days(1),
        )
    };
    let common = ["-nodes", "-keyout", "key.pem", "-out", "csr.pem", "-subj", "/CN=x"];
    let make = |kind: &[&str]| {
        desk.openssl(&[&["req", "-new", "-newkey"][..], kind, &common].concat()).unwrap();
    };
    make(&["ed25519"]);
    let issued = issue(&desk).unwrap();
    lay_out(&desk, &authority, &issued.chain_pem);
    verify(&desk, &epoch(now()), &["-purpose", "sslclient"]).unwrap();
    for kind in [
        &["rsa:2048"][..],
        &["ec", "-pkeyopt", "ec_paramgen_curve:P-384"],
        &["ec", "-pkeyopt", "ec_paramgen_curve:secp256k1"],
    ] {
        make(kind);
        let refused = issue(&desk).unwrap_err();
        assert!(matches!(refused, CaError::KeyKind), "{kind:?}: {refused}");
        assert!(refused.to_string().contains("P-256 or Ed25519"));
    }
}

#[test]
fn a_request_that_does_not_prove_possession_of_its_key_or_cannot_be_read_is_refused() {
    let authority = authority();
    let issue = |csr: &str| {
        authority.issue_node(
            csr,
            &node_uri(NODE),
            Serial::random(&ambient()),
            now(),
            now() + TimeDelta::days(1),
        )
    };
    // Another key's signature under this key's request.
    let der = |key: &KeyPair| CertificateParams::default().serialize_request(key).unwrap().der().to_vec();
    let (mine, theirs) = (der(&KeyPair::generate().unwrap()), der(&KeyPair::generate().unwrap()));
    let mut mixed = mine.clone();
    let key_at = |der: &[u8]| der.windows(2).position(|w| w == [0x42, 0x00]).unwrap() + 2;
    let (at, from) = (key_at(&mine), key_at(&theirs));
    mixed[at..at + 65].copy_from_slice(&theirs[from..from + 65]);
    let pem = |der: &[u8]| {
        use base64::Engine as _;
        let text = base64::prelude::BASE64_STANDARD.encode(der);
        format!("-----BEGIN CERTIFICATE REQUEST-----\n{text}\n-----END CERTIFICATE REQUEST-----\n")
    };
    issue(&pem(&mine)).unwrap();
    assert!(matches!(issue(&pem(&mixed)), Err(CaError::RequestSignature)));
    let trailing = [&mine[..], &[0]].concat();
    for bad in ["", "hello", &pem(b"junk"), &pem(&mine[..mine.len() - 9]), &pem(&trailing), &"x".repeat(9000)]
    {
        assert!(matches!(issue(bad), Err(CaError::Request)), "{bad}");
    }
}

#[test]
fn nothing_outlives_its_authority_and_nothing_is_valid_for_no_time() {
    let authority = authority();
    let (csr, _) = request();
    let issue =
        |from, until| authority.issue_node(&csr, &node_uri(NODE), Serial::random(&ambient()), from, until);
    let end = authority.not_after();
    let issued = issue(end - TimeDelta::hours(2), end + TimeDelta::days(1)).unwrap();
    assert_eq!(issued.validity.not_after, end);
    assert!(matches!(issue(end, end + TimeDelta::days(1)), Err(CaError::Expired(_))));
    assert!(matches!(issue(now(), now()), Err(CaError::Validity(..))));
    assert!(matches!(issue(now(), now() - TimeDelta::days(1)), Err(CaError::Validity(..))));
    let ancient = "1960-01-01T00:00:00Z".parse().unwrap();
    assert!(matches!(issue(ancient, now()), Err(CaError::Validity(..))));
    let uri = authority.issue_node(&csr, "https://x", Serial::random(&ambient()), now(), end);
    assert!(matches!(uri, Err(CaError::Name(_))));
}

#[test]
fn a_sealed_authority_opens_only_whole_with_the_same_key_and_under_its_own_id() {
    let authority = authority();
    let sealed = authority.seal(&ambient(), &master_sealer(7)).unwrap();
    let opened = Authority::open(&master_sealer(7), authority.id(), &sealed).unwrap();
    assert_eq!(opened.root(), authority.root());
    assert_eq!(opened.issuing_pem(), authority.issuing_pem());
    assert_eq!(opened.not_after(), authority.not_after());
    // What it issues chains to the same root.
    let (desk, (issued, _)) = (Desk::new(), node_certificate(&opened));
    lay_out(&desk, &authority, &issued.chain_pem);
    verify(&desk, &epoch(now()), &[]).unwrap();

    let refused = |sealer: trust::Sealer, id, bytes: &[u8]| {
        matches!(Authority::open(&sealer, id, bytes), Err(CaError::Sealed(_)))
    };
    let other: AuthorityId = ambient().id();
    assert!(refused(master_sealer(7), other, &sealed), "moved to another id");
    assert!(refused(master_sealer(8), authority.id(), &sealed), "another master key");
    assert!(refused(master_sealer(7), authority.id(), &sealed[..sealed.len() - 1]));
    assert!(refused(master_sealer(7), authority.id(), b""));
    let mut altered = sealed.clone();
    altered[40] ^= 1;
    assert!(refused(master_sealer(7), authority.id(), &altered));
    // Sealed by us for this id, but for another purpose or with another content.
    let foreign = trust::Sealer::for_purpose(&kernel::Secret::new([7; 32]), b"another purpose").unwrap();
    let bound = format!("authority:{}", authority.id());
    assert!(refused(master_sealer(7), authority.id(), &foreign.seal(&ambient(), &bound, b"\x01").unwrap()));
    for content in [&b""[..], b"\x02", b"\x01\xff\xff\xff\xff", b"\x01\x00\x00\x00\x01"] {
        let odd = master_sealer(7).seal(&ambient(), &bound, content).unwrap();
        assert!(refused(master_sealer(7), authority.id(), &odd), "{content:?}");
    }
}

#[tokio::test]
async fn behind_the_interface_each_certificate_has_a_serial_of_its_own() {
    let authority = std::sync::Arc::new(authority());
    let issuer = Embedded { authority: authority.clone(), ambient: ambient_at(now()) };
    let (csr, _) = request();
    let validity = Validity { not_before: now(), not_after: now() + TimeDelta::days(1) };
    let mut serials = std::collections::BTreeSet::new();
    for _ in 0..32 {
        let profile = Profile::Node { spiffe_uri: node_uri(NODE) };
        let issued = issuer.issue(&csr, profile, validity).await.unwrap();
        assert_eq!(chain(&issued.chain_pem)[0], issued.der);
        assert!(issued.serial.len() == 32 && serials.insert(issued.serial));
    }
    assert_eq!(issuer.roots().await.unwrap(), [authority.root()]);
    assert_eq!(authority.root_pem(), authority.root().pem());
}
