//! What is decided over the few nodes that the database finds is what would be decided over the whole fleet.

use capacity::{model::placement::place, service::placing::refused};
use kernel::Failure;
use proptest::{
    strategy::{Strategy, ValueTree},
    test_runner::TestRunner,
};

use super::{
    fleets::{fleet, packing, request, vf},
    kit::Kit,
};

const FLEETS: usize = 150;
const REQUESTS: usize = 6;

#[tokio::test(flavor = "multi_thread")]
async fn deciding_over_the_database_equals_deciding_over_the_whole_fleet() {
    let kit = Kit::new().await;
    let mut runner = TestRunner::deterministic();
    let (mut placed_count, mut refused_count) = (0, 0);
    for _ in 0..FLEETS {
        let fleet = fleet().new_tree(&mut runner).unwrap().current();
        kit.load(&fleet).await;
        for _ in 0..REQUESTS {
            let (request, packing) = (request(), packing()).new_tree(&mut runner).unwrap().current();
            let expected = place(&fleet.views(), &request, packing);
            let got = kit.try_place(&fleet, &request, packing).await;
            match (expected, got) {
                (Ok(expected), Ok(members)) => {
                    placed_count += 1;
                    for member in &members {
                        assert!(member.ssh_host.starts_with("host-") && member.ssh_port == 22);
                        let slots: Vec<_> = member.devices.iter().map(|(slot, _)| *slot).collect();
                        assert_eq!(slots, member.placed.slots);
                        for (_, devices) in member.devices.iter().filter(|_| fleet.gpu) {
                            assert_eq!(devices.fabric_vf, Some(vf(devices.slot_index as usize)));
                            assert!(devices.pci_address.is_some() && devices.nvme_device.is_some());
                        }
                    }
                    let placed: Vec<_> = members.into_iter().map(|member| member.placed).collect();
                    assert_eq!(placed, expected, "{fleet:?} {request:?} {packing:?}");
                }
                (Err(expected), Err(Failure::Problem(problem))) => {
                    refused_count += 1;
                    assert_eq!(problem, refused(&expected), "{fleet:?} {request:?} {packing:?}");
                }
                (expected, got) => panic!("{expected:?} and {got:?} for {fleet:?} {request:?} {packing:?}"),
            }
        }
    }
    assert!(
        placed_count > 100 && refused_count > 100,
        "{placed_count} and {refused_count}: nothing was compared"
    );
}
