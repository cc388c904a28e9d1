//! A tenant of a machine that is not installed anew afterwards: it has the GPUs, and nothing of root's.

use node_proto::catalog::{DeprovisionedUser, ProvisionedUser};

use super::{
    machine::Machine,
    real_host::{Request, USER, assert_gone, deprovision, done, unprivileged},
};

#[test]
fn an_account_of_user_revoke_has_the_gpus_by_group_and_is_never_root() {
    let machine = Machine::start();
    let key = machine.key("key");
    machine.sh(
        "groupadd -g 992 render; mknod -m 660 /dev/nvidia0 c 195 0; chgrp video /dev/nvidia0; mknod -m 600 /dev/nvidia9 c 195 9; \
         mkdir /dev/dri; mknod -m 660 /dev/dri/renderD128 c 226 128; chgrp render /dev/dri/renderD128; \
         mknod -m 660 /dev/sda b 8 0; chgrp disk /dev/sda",
    );
    let _: ProvisionedUser = done(&machine, Request::Provision(unprivileged(&[&key])));
    let groups = machine.ssh(USER, &key, "id -Gn").unwrap();
    assert_eq!(groups, "tenant video render");
    machine
        .ssh(
            USER,
            &key,
            "set -e; for d in /dev/nvidia0 /dev/dri/renderD128; do test -r $d; test -w $d; done; \
             ! test -r /dev/nvidia9; ! test -r /dev/sda",
        )
        .unwrap();
    // Containers without root need ids of their own.
    machine.ssh(USER, &key, "grep -q ^tenant: /etc/subuid && grep -q ^tenant: /etc/subgid").unwrap();
    for root in ["sudo -n id -u", "su -c id root </dev/null", "cat /etc/shadow", "touch /etc/cron.d/x"] {
        machine.ssh(USER, &key, root).unwrap_err();
    }
    assert_eq!(machine.sh("ls /etc/sudoers.d | grep -v README || true"), "");
    let _: DeprovisionedUser = done(&machine, deprovision());
    assert_gone(&machine, &key);
}

#[test]
fn an_account_joins_no_group_whose_members_are_as_good_as_root() {
    let machine = Machine::start();
    let key = machine.key("key");
    machine.sh("mknod -m 660 /dev/nvidia0 c 195 0; chgrp disk /dev/nvidia0");
    let why = super::real_host::refused(&machine, Request::Provision(unprivileged(&[&key])));
    assert!(why.contains("group of their own"), "{why}");
    assert_eq!(machine.sh("id -Gn tenant"), "tenant");
    let _: DeprovisionedUser = done(&machine, deprovision());
    assert_gone(&machine, &key);
}
