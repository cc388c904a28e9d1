//! Rules that must hold when requests meet.

use identity::{
    model::{
        invitation::{AcceptedWith, InvitationLimits},
        invitation_link::InvitationLinks,
        role::MemberRole,
    },
    service::{
        invitations::{Invite, invitation_accept, invitation_create, invitations_expire},
        members::{member_delete, member_update},
        people::platform_roles_set,
        project_members::project_member_set,
        projects::project_delete,
    },
};
use kernel::{Code, Failure, Permission, Role, text::Email};
use pg::Scope;

use super::world::World;

fn code(result: Result<impl Sized, Failure>) -> Option<Code> {
    match result {
        Ok(_) => None,
        Err(Failure::Problem(problem)) => Some(problem.code),
        Err(internal) => panic!("{internal:?}"),
    }
}

#[tokio::test]
async fn two_owners_who_demote_each_other_leave_one_owner() {
    let world = World::new().await;
    let (alice, bob) = (world.user("alice").await, world.user("bob").await);
    let org = world.org("duo", alice).await.id;
    world.member(org, bob, MemberRole::Owner).await;
    let demote = |actor, target| {
        let world = &world;
        async move {
            let mut tx = world.write_in(actor, org, "member.update").await;
            let viewer = Some(MemberRole::Viewer);
            member_update(&mut tx, org, target, viewer, None, &[Role::OrgOwner]).await?;
            tx.commit(None).await?;
            Ok::<_, Failure>(())
        }
    };
    let remove = |actor, target| {
        let world = &world;
        async move {
            let mut tx = world.write_in(actor, org, "member.delete").await;
            member_delete(&mut tx, org, target, None, &[Role::OrgOwner]).await?;
            tx.commit(None).await?;
            Ok::<_, Failure>(())
        }
    };
    let (first, second) = tokio::join!(demote(alice, bob), remove(bob, alice));
    let outcomes = [code(first), code(second)];
    assert!(outcomes.contains(&None) && outcomes.contains(&Some(Code::InvalidTransition)), "{outcomes:?}");
    let owners = "SELECT count(*) FROM tenant_memberships WHERE org_id = $1 AND role = 'owner'";
    assert_eq!(world.count(owners, org.uuid()).await, 1);
}

#[tokio::test]
async fn of_two_administrators_who_dismiss_each_other_one_stays() {
    let world = World::new().await;
    let (alice, bob) = (world.user("alice").await, world.user("bob").await);
    world.tamper("INSERT INTO platform_bindings SELECT id, 'platform_admin', now() FROM users").await;
    let dismiss = |actor, target| {
        let world = &world;
        async move {
            let permit =
                world.permit(actor, Role::PlatformAdmin, Scope::Platform, Permission::PlatformUserManage);
            let mut tx = world.db().write(permit, "platform_user.roles_set").await?;
            platform_roles_set(&mut tx, target, Vec::new()).await?;
            tx.commit(None).await?;
            Ok::<_, Failure>(())
        }
    };
    let (first, second) = tokio::join!(dismiss(alice, bob), dismiss(bob, alice));
    let outcomes = [code(first), code(second)];
    assert!(outcomes.contains(&None) && outcomes.contains(&Some(Code::InvalidTransition)), "{outcomes:?}");
}

/// An invitation into `org`, with its token.
async fn invite(
    world: &World,
    owner: kernel::ids::UserId,
    org: kernel::ids::OrgId,
) -> (kernel::ids::InvitationId, kernel::Secret) {
    let mut tx = world.write_in(owner, org, "invitation.create").await;
    let email = Email::parse("guest@example.com").unwrap();
    let invite = Invite { email, role: MemberRole::Member, project: None, invited_by: owner };
    let (invitation, token) =
        invitation_create(&mut tx, org, invite, InvitationLimits::default(), &[Role::OrgOwner])
            .await
            .unwrap();
    tx.commit(None).await.unwrap();
    (invitation.id, token)
}

#[tokio::test]
async fn an_invitation_accepted_many_times_at_once_makes_one_membership() {
    let world = World::new().await;
    let owner = world.user("owner").await;
    let org = world.org("host", owner).await.id;
    let (id, token) = invite(&world, owner, org).await;
    let mut guests = Vec::new();
    for n in 0..6 {
        guests.push(world.user(&format!("guest{n}")).await);
    }
    // Two attempts each, as a double click does.
    let accept = |guest| {
        let (world, token) = (&world, &token);
        async move {
            let permit = world.permit(guest, Role::Person, Scope::Org(org), Permission::InvitationAccept);
            let mut tx = world.db().write(permit, "invitation.accept").await?;
            let links = InvitationLinks::new(&kernel::Secret::new([7; 32]), "https://gpuaas.test", false);
            invitation_accept(&mut tx, &links, (org, id), AcceptedWith::Secret(token), guest).await?;
            tx.commit(None).await?;
            Ok::<_, Failure>(())
        }
    };
    let attempts = guests.iter().chain(&guests).map(|guest| accept(*guest));
    let outcomes: Vec<_> = futures_util::future::join_all(attempts).await.into_iter().map(code).collect();
    assert_eq!(outcomes.iter().filter(|o| o.is_none()).count(), 1, "{outcomes:?}");
    assert!(outcomes.iter().flatten().all(|c| *c == Code::InvalidTransition), "{outcomes:?}");
    assert_eq!(world.count("SELECT count(*) FROM tenant_memberships WHERE org_id = $1", org.uuid()).await, 2);
}

#[tokio::test]
async fn a_project_that_is_deleted_while_its_invitation_is_accepted_stands_in_nobodys_way() {
    let world = World::new().await;
    let owner = world.user("owner").await;
    let org = world.org("host", owner).await.id;
    let links = InvitationLinks::new(&kernel::Secret::new([7; 32]), "https://gpuaas.test", false);
    for n in 0..8 {
        let project = world.project(owner, org, &format!("p{n}")).await.id;
        let guest = world.user(&format!("guest{n}")).await;
        let mut tx = world.write_in(owner, org, "invitation.create").await;
        let email = Email::parse(format!("guest{n}@example.org")).unwrap();
        let project_role = Some((project, MemberRole::Member));
        let invite = Invite { email, role: MemberRole::Member, project: project_role, invited_by: owner };
        let limits = InvitationLimits::default();
        let (invitation, token) =
            invitation_create(&mut tx, org, invite, limits, &[Role::OrgOwner]).await.unwrap();
        tx.commit(None).await.unwrap();
        let accept = async {
            let permit = world.permit(guest, Role::Person, Scope::Org(org), Permission::InvitationAccept);
            let mut tx = world.db().write(permit, "invitation.accept").await?;
            let with = AcceptedWith::Secret(&token);
            invitation_accept(&mut tx, &links, (org, invitation.id), with, guest).await?;
            tx.commit(None).await?;
            Ok::<_, Failure>(())
        };
        let delete = async {
            let mut tx = world.write_in(owner, org, "project.delete").await;
            project_delete(&mut tx, org, project, None).await?;
            tx.commit(None).await?;
            Ok::<_, Failure>(())
        };
        let (accepted, deleted) = tokio::join!(accept, delete);
        assert_eq!((code(accepted), code(deleted)), (None, None), "{n}");
        let member = "SELECT count(*) FROM tenant_memberships WHERE user_id = $1";
        assert_eq!(world.count(member, guest.uuid()).await, 1);
        let left = "SELECT count(*) FROM project_memberships WHERE user_id = $1";
        assert_eq!(world.count(left, guest.uuid()).await, 0);
    }
}

#[tokio::test]
async fn overdue_invitations_expire_once_in_the_audit_trail_of_their_organization() {
    let world = World::new().await;
    let owner = world.user("owner").await;
    let org = world.org("host", owner).await.id;
    let (id, _) = invite(&world, owner, org).await;
    assert_eq!(invitations_expire(world.db(), 10).await.unwrap(), 0, "its time is not over");
    world.tamper("UPDATE invitations SET expires_at = now() - interval '1 second'").await;
    let (a, b) = tokio::join!(invitations_expire(world.db(), 10), invitations_expire(world.db(), 10));
    assert_eq!(a.unwrap() + b.unwrap(), 1, "two replicas, one expiry");
    let audited = "SELECT count(*) FROM audit_logs WHERE org_id = $1 AND action = 'invitation.expire'";
    assert_eq!(world.count(audited, org.uuid()).await, 1);
    let expired = "SELECT count(*) FROM invitations WHERE id = $1 AND state = 'expired'";
    assert_eq!(world.count(expired, id.uuid()).await, 1);
    invite(&world, owner, org).await;
}

#[tokio::test]
async fn an_overdue_invitation_does_not_stand_in_the_way_of_a_new_one() {
    let world = World::new().await;
    let owner = world.user("owner").await;
    let org = world.org("host", owner).await.id;
    invite(&world, owner, org).await;
    world.tamper("UPDATE invitations SET expires_at = now() - interval '1 second'").await;
    let (made, _) = invite(&world, owner, org).await;
    let mut admin = world.test.conn(pg::Roles::Admin).await;
    let newest =
        "SELECT target_id FROM audit_logs WHERE action = 'invitation.create' ORDER BY seq DESC LIMIT 1";
    let target: Option<String> = sqlx::query_scalar(newest).fetch_one(&mut admin).await.unwrap();
    assert_eq!(target, Some(made.to_string()), "the trail names the one that was made");
    let states = "SELECT count(DISTINCT state) FROM invitations WHERE org_id = $1";
    assert_eq!(world.count(states, org.uuid()).await, 2);
}

#[tokio::test]
async fn a_member_added_by_two_at_once_is_added_once_and_the_second_is_told() {
    let world = World::new().await;
    let (alice, bob) = (world.user("alice").await, world.user("bob").await);
    let org = world.org("duo", alice).await.id;
    world.member(org, bob, MemberRole::Member).await;
    let project = world.project(alice, org, "shared").await.id;
    let set = async |tx: &mut pg::WriteTx, role, actor| {
        project_member_set(tx, (org, project), bob, role, None, &[actor]).await
    };
    let mut first = world.write_in(alice, org, "project_member.set").await;
    set(&mut first, MemberRole::Owner, Role::OrgOwner).await.unwrap();
    let second = async {
        let mut tx = world.write_in(alice, org, "project_member.set").await;
        set(&mut tx, MemberRole::Viewer, Role::ProjectAdmin).await?;
        tx.commit(None).await?;
        Ok::<_, Failure>(())
    };
    let commit = async {
        let waiting = "SELECT count(*) FROM pg_stat_activity
                       WHERE datname = current_database() AND wait_event_type = 'Lock' AND $1::uuid IS NOT NULL";
        let look = || async { (world.count(waiting, org.uuid()).await > 0).then_some(()) };
        testkit::eventually("the second waits for the first", look).await;
        first.commit(None).await.unwrap();
    };
    let (second, ()) = tokio::join!(second, commit);
    assert_eq!(code(second), Some(Code::Conflict));
    let role = "SELECT count(*) FROM project_memberships WHERE project_id = $1 AND role = 'viewer'";
    assert_eq!(world.count(role, project.uuid()).await, 0, "what the first said holds");
}

#[tokio::test]
async fn a_lost_race_on_the_version_changes_nothing() {
    let world = World::new().await;
    let (alice, bob) = (world.user("alice").await, world.user("bob").await);
    let org = world.org("duo", alice).await.id;
    world.member(org, bob, MemberRole::Viewer).await;
    let mut tx = world.write_in(alice, org, "member.update").await;
    let stale = member_update(&mut tx, org, bob, Some(MemberRole::Admin), Some(7), &[Role::OrgOwner]).await;
    assert_eq!(code(stale), Some(Code::Conflict));
    drop(tx);
    let admins = "SELECT count(*) FROM tenant_memberships WHERE org_id = $1 AND role = 'admin'";
    assert_eq!(world.count(admins, org.uuid()).await, 0);
}

#[tokio::test]
async fn a_personal_organization_takes_nobody_in() {
    let world = World::new().await;
    let owner = world.user("owner").await;
    let org = world.org("mine", owner).await.id;
    world.tamper("UPDATE organizations SET kind = 'personal'").await;
    let mut tx = world.write_in(owner, org, "invitation.create").await;
    let email = Email::parse("guest@example.com").unwrap();
    let invite = Invite { email, role: MemberRole::Viewer, project: None, invited_by: owner };
    let refused =
        invitation_create(&mut tx, org, invite, InvitationLimits::default(), &[Role::OrgOwner]).await;
    assert_eq!(code(refused), Some(Code::Unprocessable));
}
