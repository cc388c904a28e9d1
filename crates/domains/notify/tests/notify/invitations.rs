//! Invitations by mail: to addresses that belong to nobody yet, with a link that is kept nowhere.

use chrono::TimeDelta;
use events::identity::MemberRole;
use identity::api::{InvitationLinks, InvitedProject, OpenInvitation, PlatformRole};
use kernel::{Secret, ids::InvitationId};
use notify::model::{delivery::Channel, mail::render_invitation};
use serde_json::json;
use testkit::MailServer;
use uuid::Uuid;

use crate::world::World;

const EMAIL: &str = "ada@example.org";

/// Somebody was invited, and everybody who wants to know heard of it.
async fn invited(world: &World) -> InvitationId {
    let (invitation, _) = world.tenants.invite(world.org, EMAIL, MemberRole::Member).await;
    world.deliver().await;
    invitation.id
}

async fn revoked(world: &World, id: InvitationId) {
    world.tenants.invitation_revoke(world.org, id).await;
    world.deliver().await;
}

#[tokio::test]
async fn an_invitation_reaches_an_address_of_nobody_also_when_the_mail_server_comes_back_late() {
    let mut mail = MailServer::down();
    let world = World::new(mail.port).await;
    let id = invited(&world).await;
    assert_eq!(world.send(Channel::Invitation).await, 1);
    mail.start().await;
    world.goes_on(Channel::Invitation, 3, TimeDelta::minutes(1)).await;
    let messages = mail.messages();
    assert_eq!(messages.len(), 1);
    assert_eq!(messages[0]["to"], json!([EMAIL]));
    assert_eq!(messages[0]["headers"]["Subject"], "[GPUaaS] Invitation to Org");
    let links = InvitationLinks::new(&Secret::new([7; 32]), "https://gpuaas.test", true);
    let link = links.link(id, EMAIL);
    assert!(messages[0]["text"].as_str().unwrap().contains(link.expose()));
    assert!(messages[0]["html"].as_str().unwrap().contains(&link.expose().replace('&', "&amp;")));
    // Operators see that it was sent, not what or to whom; and the proof is not in the row either.
    let ops = world.platform(PlatformRole::PlatformOps, "ops@example.org").await;
    let listed = world.get(ops, "/api/v1/platform/deliveries").await;
    assert_eq!(listed["items"][0]["state"], "sent");
    assert!(!listed.to_string().contains(EMAIL) && !listed.to_string().contains("proof"), "{listed}");
    let (_, proof) = link.expose().rsplit_once('=').unwrap();
    let kept = format!("SELECT count(*) FROM deliveries d WHERE strpos(d::text, '{proof}') > 0");
    assert_eq!(world.count(&kept).await, 0);
    assert_eq!(world.count("SELECT count(*) FROM notifications").await, 0);
}

#[tokio::test]
async fn an_invitation_that_is_withdrawn_before_its_mail_is_sent_is_not_mailed() {
    let mail = MailServer::up().await;
    let world = World::new(mail.port).await;
    let id = invited(&world).await;
    revoked(&world, id).await;
    world.send(Channel::Invitation).await;
    assert_eq!(mail.messages().len(), 0);
    let given_up = "SELECT count(*) FROM deliveries WHERE state = 'failed' AND last_error LIKE '%revoked%'";
    assert_eq!(world.count(given_up).await, 1);
}

#[tokio::test]
async fn an_invitation_that_the_release_before_queued_as_mail_is_sent() {
    let mail = MailServer::up().await;
    let world = World::new(mail.port).await;
    invited(&world).await;
    world.sql("UPDATE deliveries SET channel = 'mail'").await;
    assert_eq!(world.send(Channel::Mail).await, 1);
    assert_eq!(mail.messages()[0]["headers"]["Subject"], "[GPUaaS] Invitation to Org");
}

#[test]
fn mail_that_invites_reads_as_it_did() {
    let open = OpenInvitation {
        id: Uuid::from_u128(1).into(),
        org_id: Uuid::from_u128(2).into(),
        org_name: "Acme <b>Labs</b>\r\nBcc: eve@example.org".to_owned(),
        email: EMAIL.to_owned(),
        role: MemberRole::Member,
        project: Some(InvitedProject { name: Some("training\nset".to_owned()), role: MemberRole::Admin }),
        invited_by: "Bo {link}".to_owned(),
        expires_at: "2026-03-08T12:00:00Z".parse().unwrap(),
    };
    let link = "https://gpuaas.test/auth/invitation?invitation=inv_1&proof=x";
    let mail = render_invitation(&open, &Secret::new(link.to_owned()));
    assert!(!mail.subject.contains(['\r', '\n']) && !mail.html.contains("<b>"));
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let text = format!("Subject: {}\n\n{}", mail.subject, mail.text);
    for (extension, now) in [("txt", text), ("html", mail.html)] {
        let path = dir.join(format!("invitation.{extension}"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, &now).unwrap();
        }
        let golden = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(now, golden, "{} differs; UPDATE_GOLDEN=1 writes it", path.display());
    }
}
