//! Joining, renewing, being repaired, and following trust.

use std::{sync::Arc, time::Duration};

use chrono::TimeDelta;
use node_agent::identity::{FileStore, IdentityError, IdentityStore};
use node_proto::{
    KeysetError,
    contract::{Heartbeat, JoinInfo},
};

use super::{
    authority::{Authority, ed25519},
    gateway::TOKEN,
    node::{Doing, Node},
};

#[tokio::test(start_paused = true)]
async fn a_node_joins_only_the_control_plane_that_was_pinned() {
    let node = Node::new(Doing::fine());
    let join = node.join();
    let other = JoinInfo { root_sha256: vec!["00".repeat(32)], ..join.clone() };
    assert!(matches!(node.enroll(&other, TOKEN).await, Err(IdentityError::Call(_))));
    let other = JoinInfo { keyset_key: "00".repeat(32), ..join.clone() };
    assert!(matches!(
        node.enroll(&other, TOKEN).await,
        Err(IdentityError::Keyset(KeysetError::BadSignature))
    ));
    for bad in [
        JoinInfo { root_sha256: vec![], ..join.clone() },
        JoinInfo { keyset_key: "zz".into(), ..join.clone() },
    ] {
        assert!(matches!(node.enroll(&bad, TOKEN).await, Err(IdentityError::Join(_))));
    }
    assert!(
        matches!(node.enroll(&join, "stolen").await, Err(IdentityError::Call(error)) if error.is_about_identity())
    );
    assert!(node.store.load().unwrap().is_none());
    node.enroll(&join, TOKEN).await.unwrap();
    assert_eq!(node.store.load().unwrap().unwrap().node_id(), node.id);
    let foreign = JoinInfo { node_id: uuid::Uuid::from_u128(9).into(), ..join };
    assert!(matches!(node.enroll(&foreign, TOKEN).await, Err(IdentityError::Join(_))));
}

#[tokio::test(start_paused = true)]
async fn a_certificate_for_another_name_or_from_another_root_is_not_believed() {
    let node = Node::joined(Doing::fine()).await;
    let now = node.ambient.now();
    let day = TimeDelta::days(1);
    node.gateway.use_server_certificate("other.test", now - day, now + day);
    let running = node.start();
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(node.gateway.reports_lock().heartbeats.is_empty());
    let ours = std::mem::replace(&mut *node.gateway.authority.lock().unwrap(), Authority::new(now));
    node.gateway.use_server_certificate("cp.test", now - day, now + day);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(node.gateway.reports_lock().heartbeats.is_empty());
    *node.gateway.authority.lock().unwrap() = ours;
    node.gateway.use_server_certificate("cp.test", now - day, now + day);
    node.gateway.until("contact", |told| !told.heartbeats.is_empty()).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn clocks_may_differ_by_minutes_but_not_by_hours() {
    for (minutes, believed) in [(0, true), (-5, true), (5, true), (-90, false)] {
        let node = Node::skewed(Doing::fine(), TimeDelta::minutes(minutes));
        let now = node.gateway.ambient.now();
        node.gateway.use_server_certificate("cp.test", now - TimeDelta::seconds(1), now + TimeDelta::days(1));
        let joined = node.enroll(&node.join(), TOKEN).await;
        assert_eq!(joined.is_ok(), believed, "{minutes}");
        if believed {
            let running = node.start();
            node.gateway
                .until("the offset", |told| {
                    told.heartbeats.last().is_some_and(|beat| {
                        beat.clock_offset_ms.is_some_and(|ms| (ms - minutes * 60_000).abs() < 1000)
                    })
                })
                .await;
            let id = node.queue(&node.task(1));
            node.gateway.until("the result", |told| told.results.contains_key(&id)).await;
            assert_eq!(node.doing.count(id), 1);
            // A clock that is off is a finding, and work goes on.
            node.gateway.until("two more reports", |told| told.heartbeats.len() > 3).await;
            let told = node.gateway.reports_lock().heartbeats.clone();
            let skewed = |beat: &Heartbeat| beat.findings.iter().any(|f| f.code == "node.clock_skew");
            assert_eq!(told.iter().any(skewed), minutes != 0, "{minutes}");
            running.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_five_minutes_off_renews_in_time_while_work_goes_on() {
    for minutes in [-5, 5] {
        let node = Node::skewed(Doing::fine(), TimeDelta::minutes(minutes));
        node.gateway.reports_lock().certificate_life = Some(TimeDelta::hours(1));
        node.enroll(&node.join(), TOKEN).await.unwrap();
        let running = node.start();
        for number in 1..=40 {
            let id = node.queue(&node.task(number));
            node.gateway.until("the result", |told| told.results.contains_key(&id)).await;
            tokio::time::sleep(5 * MINUTE).await;
        }
        running.stop().await;
        let told = node.gateway.reports_lock();
        assert!((3..=6).contains(&told.renewals), "{minutes}: {}", told.renewals);
        assert_eq!((told.refused, told.results.len()), (0, 40), "{minutes}");
    }
}

/// A node whose certificates live for an hour: renewed from 40 minutes on, not all at the same moment.
async fn joined_for_an_hour() -> Node {
    let node = Node::new(Doing::fine());
    node.gateway.reports_lock().certificate_life = Some(TimeDelta::hours(1));
    node.enroll(&node.join(), TOKEN).await.unwrap();
    node
}

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_certificate_is_renewed_before_its_end_with_a_new_key_and_work_goes_on() {
    let node = joined_for_an_hour().await;
    let before = node.store.load().unwrap().unwrap();
    let running = node.start();
    tokio::time::sleep(39 * MINUTE).await;
    assert_eq!(node.gateway.reports_lock().renewals, 0);
    tokio::time::sleep(10 * MINUTE).await;
    assert_eq!(node.gateway.reports_lock().renewals, 1);
    let after = node.store.load().unwrap().unwrap();
    assert!(after.expires_at() > before.expires_at());
    assert_ne!(before.certified.pair.key_pem.expose(), after.certified.pair.key_pem.expose());
    let id = node.queue(&node.task(1));
    node.gateway.until("the result", |told| told.results.contains_key(&id)).await;
    tokio::time::sleep(100 * MINUTE).await;
    assert!((3..=4).contains(&node.gateway.reports_lock().renewals));
    assert_eq!(node.gateway.reports_lock().refused, 0);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_new_certificate_that_is_refused_gives_way_to_the_old_one() {
    let node = joined_for_an_hour().await;
    node.gateway.reports_lock().refuse_certificates_from = Some(node.ambient.now() + TimeDelta::minutes(10));
    let before = node.store.load().unwrap().unwrap().expires_at();
    let running = node.start();
    tokio::time::sleep(48 * MINUTE).await;
    assert!(node.gateway.reports_lock().renewals >= 1);
    let beats = node.gateway.reports_lock().heartbeats.len();
    tokio::time::sleep(3 * MINUTE).await;
    assert!(node.gateway.reports_lock().heartbeats.len() > beats);
    node.gateway.reports_lock().refuse_certificates_from = None;
    let renewed = |_: &_| node.store.load().unwrap().unwrap().expires_at() > before;
    node.gateway.until("a later one", renewed).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_expired_node_keeps_trying_and_comes_back_with_a_repair_token() {
    let node = Node::joined(Doing::fine()).await;
    let running = node.start();
    node.gateway.until("contact", |told| !told.heartbeats.is_empty()).await;
    node.gateway.reports_lock().down = true;
    running.crash().await;
    tokio::time::sleep(Duration::from_secs(3600 * 30)).await;
    node.gateway.reports_lock().down = false;
    let beats = node.gateway.reports_lock().heartbeats.len();
    let running = node.start();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(node.gateway.reports_lock().heartbeats.len(), beats);
    assert!(node.gateway.reports_lock().refused > 0);
    // The agent goes on running while the operator repairs the node.
    node.enroll(&node.join(), TOKEN).await.unwrap();
    node.gateway.until("contact", |told| told.heartbeats.len() > beats).await;
    let said = node.gateway.clone();
    said.until("the log", |told| told.log_lines.iter().any(|line| line.contains("repair token"))).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_running_agent_takes_over_what_a_repair_gave_although_it_ends_earlier() {
    for life in [TimeDelta::hours(1), TimeDelta::hours(24)] {
        let node = Node::joined(Doing::fine()).await;
        let before = node.store.load().unwrap().unwrap();
        let running = node.start();
        node.gateway.until("contact", |told| !told.heartbeats.is_empty()).await;
        tokio::time::sleep(MINUTE).await;
        // An operator repairs the node: what it had is revoked, and the next one is given for less time.
        {
            let mut told = node.gateway.reports_lock();
            told.certificate_life = Some(life);
            told.refuse_certificates_before = Some(before.certified.not_before + TimeDelta::seconds(1));
        }
        node.enroll(&node.join(), TOKEN).await.unwrap();
        let repaired = node.store.load().unwrap().unwrap();
        assert!(life > TimeDelta::hours(1) || repaired.expires_at() < before.expires_at());
        let with_it = |beat: &Heartbeat| beat.certificate_expires_at == repaired.expires_at();
        node.gateway.until("contact with the new one", |told| told.heartbeats.iter().any(with_it)).await;
        // It is renewed by its own end, not by that of the one before.
        if life == TimeDelta::hours(1) {
            tokio::time::sleep(55 * MINUTE).await;
            assert_eq!(node.gateway.reports_lock().renewals, 1);
        }
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_of_signers_is_taken_only_when_newer_and_signed_by_the_pinned_key() {
    let node = Node::joined(Doing::fine()).await;
    let running = node.start();
    node.gateway.reports_lock().keyset_serial = 5;
    let serial = || node.store.load().unwrap().unwrap().trust.keyset.serial;
    node.gateway
        .until("the newer list", |told| {
            told.heartbeats
                .last()
                .is_some_and(|beat| beat.keyset_serial == Some(5) && beat.applied_version == 7)
        })
        .await;
    assert_eq!(serial(), 5);
    // An old list is offered, as by a restored database.
    node.gateway.reports_lock().keyset_serial = 2;
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(serial(), 5);
    // A newer one comes with a signer of somebody else.
    let now = node.ambient.now();
    let forged = {
        let mut authority = node.gateway.authority.lock().unwrap();
        let mut trust = authority.trust(9, now);
        authority.signers.push((3, ed25519()));
        trust.keyset = authority.keyset_signed_by(&ed25519(), 9, now);
        trust
    };
    node.gateway.reports_lock().told_trust = Some(forged);
    node.gateway.reports_lock().keyset_serial = 9;
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(serial(), 5);
    let mut task = node.task(1);
    task.signer_version = 3;
    let id = node.queue(&task);
    node.gateway.until("the refusal", |told| told.results.contains_key(&id)).await;
    assert_eq!(node.doing.count(id), 0);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn files_of_an_identity_hold_a_working_pair_after_a_crash_at_any_point() {
    let above = tempfile::tempdir().unwrap();
    let dir = above.path().join("state");
    let node = Node::joined(Doing::fine()).await;
    let first = node.store.load().unwrap().unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    node.enroll(&node.join(), TOKEN).await.unwrap();
    let second = node.store.load().unwrap().unwrap();
    let store = Arc::new(FileStore::open(&dir).unwrap());
    assert!(store.load().unwrap().is_none());
    store.save_joined(&first.join, &first.certified.pair, &first.trust.stored).unwrap();
    let expires = |store: &FileStore| store.load().unwrap().unwrap().expires_at();
    assert_eq!(expires(&store), first.expires_at());
    // Only the new key is there: the old pair counts.
    std::fs::write(dir.join("key.next.pem"), second.certified.pair.key_pem.expose()).unwrap();
    assert_eq!(expires(&store), first.expires_at());
    store.save_next(&second.certified.pair).unwrap();
    assert_eq!(expires(&store), second.expires_at());
    // Only the key was moved.
    std::fs::rename(dir.join("key.next.pem"), dir.join("key.pem")).unwrap();
    assert_eq!(expires(&store), second.expires_at());
    store.promote_next().unwrap();
    assert_eq!(expires(&store), second.expires_at());
    store.save_next(&first.certified.pair).unwrap();
    store.discard_next().unwrap();
    assert_eq!(expires(&store), second.expires_at());
    for entry in std::fs::read_dir(&dir).unwrap() {
        let mode = std::os::unix::fs::PermissionsExt::mode(&entry.unwrap().metadata().unwrap().permissions());
        assert_eq!(mode & 0o077, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_asked_for_a_new_key_renews_at_once_and_once() {
    let node = joined_for_an_hour().await;
    let before = node.store.load().unwrap().unwrap();
    let running = node.start();
    node.gateway.until("contact", |told| !told.heartbeats.is_empty()).await;
    node.gateway.reports_lock().renew_now = true;
    node.gateway.until("a renewal", |told| told.renewals == 1).await;
    tokio::time::sleep(5 * MINUTE).await;
    // One guard: a second one in the same statement would wait for the first.
    let counts = {
        let told = node.gateway.reports_lock();
        (told.renewals, told.refused)
    };
    assert_eq!(counts, (1, 0));
    let after = node.store.load().unwrap().unwrap();
    assert_ne!(before.certified.pair.key_pem.expose(), after.certified.pair.key_pem.expose());
    assert!(node.store.load_pending().unwrap().is_none(), "nothing is kept of what has worked");
    running.stop().await;
}

/// The control plane certifies a key once and answers for it again: another key would look like a thief's.
#[tokio::test(start_paused = true)]
async fn an_agent_that_never_heard_the_answer_to_a_renewal_asks_again_with_the_same_key() {
    for crashes in [false, true] {
        let node = joined_for_an_hour().await;
        let mut running = node.start();
        node.gateway.until("contact", |told| !told.heartbeats.is_empty()).await;
        node.gateway.reports_lock().lose_renewal_answers = 1;
        node.gateway.reports_lock().renew_now = true;
        node.gateway.until("a renewal whose answer is lost", |told| told.renewals == 1).await;
        if crashes {
            running.stop().await;
            running = node.start();
        }
        node.gateway.until("the renewal once more", |told| told.renewals == 2).await;
        tokio::time::sleep(MINUTE).await;
        let keys = node.gateway.reports_lock().renewal_keys.clone();
        assert!(keys.len() == 2 && keys[0] == keys[1], "{crashes}");
        assert!(node.store.load_pending().unwrap().is_none());
        // The next one is another key.
        node.gateway.reports_lock().renew_now = true;
        node.gateway.until("the next renewal", |told| told.renewals == 3).await;
        assert_ne!(node.gateway.reports_lock().renewal_keys[2], keys[0]);
        running.stop().await;
    }
}
