use proptest::prelude::*;

use super::*;

const ED25519: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDb4KgPU1jW7Hu3tQge9APO7bGZuZVNdWcTfKs7Yr6d+ me@host";
const RSA_1024: &str = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQCrkdiJh5vxiTG3wmMImpdXAQVQOB0qltohkEReedkSjAbdMfvNOVYAPXi5sWh3e1Ku6svS/VxyBNAsNEu3Qzfo3+AmUDKfEfs8XifbpWrNq9icKE5I9GWLnLDSW6WuJJklvslZrHBSqtYr6p1C1ppfexaWPHl0LnpIPTXhwWyyuQ== me@host";
const RSA_2048: &str = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQCZAc423yHkxM8XJF2h2d1micvRZBDNldcWoPPQHmGKYN71zN4oT/XP/OzOb03wgZST/fIJ/9zTuMZZCo1zx7iQ1zqt+J90Mhsjsmj9esZ9k0Hhw5R2STPpzAsnSnhDnj5cV5Qz1MTMYKz/ERWUDXKQlSlkIeFmDa9SHoYxp37imm7z/YGgLFs/KXqLxdh6G7KkTn3trz0J9ZKV8JrTFDOgSJf28dOH0U/iHy+V5qcFrPKxsCL/OlXKbCmLnpZ05PXYrTdZRUmCI8p+lFLsF1CM5XUpim2rXhwy2BKd4u0eGhTXvk2fbs/rKHhOM23sLvSIFHYD2OBnwC4CL4TNhhwD me@host";
const OTHERS: [&str; 3] = [
    "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBKhojW8ERXak7S6gxra3laR6bMmFyRsWiadxyim7OT+bs7yoEhEpq8LBX+xRVXBZ0fF3G3jTvHXSredNyUP9VMw= me@host",
    "ecdsa-sha2-nistp384 AAAAE2VjZHNhLXNoYTItbmlzdHAzODQAAAAIbmlzdHAzODQAAABhBKUij5O7sTNmoHb2dXsk/z52pUsaDhrGS9V/NTOQ+cAutyeEY4Oz+ECOKbC+QLbwLwwvaQku/pbZ3GFJk4V/cNYzJHcHWwXP6r8ZuGOqMAksd0hkpO8KKKMrque+abz8rQ== me@host",
    "ecdsa-sha2-nistp521 AAAAE2VjZHNhLXNoYTItbmlzdHA1MjEAAAAIbmlzdHA1MjEAAACFBAGTY++wlyoU1o7otVqIdmOl4afC1FOI5yQ/LN+d1ZEiJvk/CSyDZrhFTEOSxnlCN5lL2QrB47F7aFabIj8FOy56ogGiORBzH1o4N2tWO0ix6bcWwE1Yk3LB1YfJCtuOuA7CfxHiXW6Bu1DrqlPKj+FdSmjMoXeOrPkePfjIrOHMxtKcpw== me@host",
];

#[test]
fn usual_keys_are_accepted_and_kept_without_their_comment() {
    let key = check(&format!("{ED25519}\n")).unwrap();
    assert_eq!(key.key_type, "ssh-ed25519");
    assert_eq!(
        key.fingerprint, "SHA256:B+qts+E4schpvers7bQvxdrhn77RwxMonwJ7iPkMPwY",
        "as ssh-keygen -l prints it"
    );
    assert_eq!(key.public_key, ED25519.trim_end_matches(" me@host"));
    for text in OTHERS.iter().chain([&RSA_2048]) {
        let key = check(text).unwrap();
        assert!(text.starts_with(&key.public_key), "{text}");
        assert_eq!(check(&key.public_key).as_ref(), Ok(&key), "the kept form is accepted again");
    }
}

#[test]
fn weak_disguised_and_broken_keys_are_refused_by_field() {
    let blob = ED25519.split(' ').nth(1).unwrap();
    for bad in [
        RSA_1024.to_owned(),
        format!("command=\"rm -rf /\" {ED25519}"),
        format!("no-pty {ED25519}"),
        format!("{ED25519}\n{ED25519}"),
        format!("ssh-rsa {blob}"),
        format!("ssh-ed25519 {}", &blob[..40]),
        format!("ssh-ed25519 {blob}AAAA"),
        format!("ssh-ed25519-cert-v01@openssh.com {blob}"),
        "ssh-dss AAAAB3NzaC1kc3MAAAAA".to_owned(),
        "-----BEGIN OPENSSH PRIVATE KEY-----".to_owned(),
        "ssh-ed25519".to_owned(),
        String::new(),
        format!("{ED25519}{}", "x".repeat(MAX_KEY_BYTES)),
    ] {
        let problem = check(&bad).unwrap_err();
        assert_eq!(problem.details["fields"][0]["field"], "public_key", "{bad}");
    }
}

#[test]
fn a_private_key_is_called_one() {
    let problem = check("-----BEGIN RSA PRIVATE KEY-----\nMIIE").unwrap_err();
    assert!(problem.message.contains("private key"));
}

proptest! {
    #[test]
    fn no_text_makes_the_check_panic(kind in 0..TYPES.len(), rest in "\\PC*") {
        let _ = check(&format!("{} {rest}", TYPES[kind]));
    }

    #[test]
    fn no_bytes_behind_a_type_make_the_check_panic(
        kind in 0..TYPES.len(), bytes in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        use base64::Engine as _;
        let mut blob = u32::try_from(TYPES[kind].len()).unwrap().to_be_bytes().to_vec();
        blob.extend(TYPES[kind].as_bytes());
        blob.extend(bytes);
        let blob = base64::prelude::BASE64_STANDARD.encode(blob);
        let _ = check(&format!("{} {blob}", TYPES[kind]));
    }
}
