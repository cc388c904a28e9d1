//! What a discovery changes about the slots that are known. It only proposes: nothing becomes sellable by it, and
//! nothing about a slot with somebody's work in it changes but what stands in its way.

use std::collections::BTreeSet;

use node_proto::catalog::{Blocker, CandidateSlot};

use super::slot::{Slot, SlotState};

/// What becomes of one known slot.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Found as it was known: only what stands in its way is new.
    Same {
        blockers: Vec<Blocker>,
    },
    /// Found with other surroundings; whatever was approved before was not this.
    Other {
        candidate: CandidateSlot,
        withdraw: bool,
    },
    Missing,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    pub known: Vec<(usize, Change)>,
    /// New slots with their places.
    pub new: Vec<(u32, CandidateSlot)>,
}

/// Slots are known by their device, and without one by their place. Places once given are kept.
pub fn plan(slots: &[Slot], candidates: &[CandidateSlot]) -> Plan {
    let mut taken: BTreeSet<u32> =
        slots.iter().filter_map(|slot| u32::try_from(slot.slot_index).ok()).collect();
    let mut found = vec![None; slots.len()];
    let mut new = Vec::new();
    for candidate in candidates {
        let known =
            slots.iter().enumerate().position(|(n, slot)| found[n].is_none() && is_same(slot, candidate));
        match known {
            Some(n) => found[n] = Some(change(&slots[n], candidate)),
            None => new.push(candidate.clone()),
        }
    }
    let known = found.into_iter().map(|change| change.unwrap_or(Change::Missing)).enumerate().collect();
    let place = |candidate: CandidateSlot| {
        let free =
            (candidate.slot_index..).chain(0..).find(|index| !taken.contains(index)).unwrap_or(u32::MAX);
        taken.insert(free);
        (free, candidate)
    };
    Plan { known, new: new.into_iter().map(place).collect() }
}

fn is_same(slot: &Slot, candidate: &CandidateSlot) -> bool {
    match (&slot.pci_address, &candidate.pci_address) {
        (Some(known), Some(found)) => known == found,
        (None, None) => u32::try_from(slot.slot_index) == Ok(candidate.slot_index),
        _ => false,
    }
}

fn change(slot: &Slot, candidate: &CandidateSlot) -> Change {
    let number = |value: Option<u32>| value.and_then(|n| i32::try_from(n).ok());
    let same = slot.iommu_group == number(candidate.iommu_group)
        && slot.nvme_device == candidate.nvme_device
        && slot.fabric_vf == candidate.fabric_vf
        && slot.numa_node == number(candidate.numa_node)
        && slot.model == candidate.model;
    if same {
        return Change::Same { blockers: candidate.blockers.clone() };
    }
    if slot.is_occupied() {
        let mut blockers = candidate.blockers.clone();
        blockers.push(Blocker {
            code: "changed".to_owned(),
            subject: candidate.pci_address.clone().unwrap_or_else(|| "node".to_owned()),
            message: "The last discovery found other hardware properties while the slot was in use; discover the node again when the slot is free."
                .to_owned(),
        });
        return Change::Same { blockers };
    }
    Change::Other {
        candidate: candidate.clone(),
        withdraw: matches!(slot.state, SlotState::Approved | SlotState::Available),
    }
}

/// What a slot that is no longer there is marked with.
pub fn missing(slot: &Slot) -> Blocker {
    Blocker {
        code: "missing".to_owned(),
        subject: slot.pci_address.clone().unwrap_or_else(|| "node".to_owned()),
        message: "The last discovery did not find the slot; check the machine, then discover the node again."
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use lifecycle::Lifecycle as _;
    use node_proto::catalog::SlotKind;
    use uuid::Uuid;

    use super::*;
    use crate::model::slot::{self, FabricMode, SlotHealth, SlotLifecycle};

    fn candidate(index: u32, pci: &str) -> CandidateSlot {
        CandidateSlot {
            slot_index: index,
            kind: SlotKind::Gpu,
            pci_address: Some(pci.to_owned()),
            model: "H200".to_owned(),
            iommu_group: Some(index),
            nvme_device: Some(format!("nvme-{pci}")),
            numa_node: Some(0),
            fabric_vf: None,
            blockers: Vec::new(),
        }
    }

    fn slot(index: i32, pci: &str, state: SlotState) -> Slot {
        Slot {
            id: Uuid::from_u128(u128::try_from(index).unwrap() + 1).into(),
            node_id: Uuid::nil().into(),
            slot_index: index,
            kind: slot::SlotKind::Gpu,
            state,
            pci_address: Some(pci.to_owned()),
            model: "H200".to_owned(),
            iommu_group: Some(index),
            nvme_device: Some(format!("nvme-{pci}")),
            numa_node: Some(0),
            fabric_mode: FabricMode::None,
            fabric_vf: None,
            fabric_numa: None,
            cleanup_reason: None,
            mac_address: None,
            private_ip: None,
            sku: None,
            health: SlotHealth::Healthy,
            blockers: Vec::new(),
            version: 1,
            created_at: DateTime::UNIX_EPOCH,
            updated_at: DateTime::UNIX_EPOCH,
        }
    }

    #[test]
    fn a_new_device_between_known_ones_takes_a_free_place_and_moves_nobody() {
        let slots = [slot(0, "a", SlotState::InUse), slot(1, "c", SlotState::Available)];
        let mut third = candidate(2, "c");
        third.iommu_group = Some(1);
        let plan = plan(&slots, &[candidate(0, "a"), candidate(1, "b"), third]);
        assert_eq!(
            plan.new.iter().map(|(place, c)| (*place, c.pci_address.as_deref())).collect::<Vec<_>>(),
            [(2, Some("b"))]
        );
        assert!(plan.known.iter().all(|(_, change)| matches!(change, Change::Same { .. })));
    }

    #[test]
    fn surroundings_of_a_slot_in_use_never_change_and_approval_does_not_outlive_them() {
        for state in SlotLifecycle::STATES {
            let mut moved = candidate(0, "a");
            moved.nvme_device = Some("another".to_owned());
            let plan = plan(&[slot(0, "a", *state)], &[moved]);
            match &plan.known[0].1 {
                Change::Same { blockers } => {
                    assert!(state.is_occupied(), "{state:?}");
                    assert_eq!(blockers[0].code, "changed");
                }
                Change::Other { withdraw, .. } => {
                    assert!(!state.is_occupied(), "{state:?}");
                    assert_eq!(*withdraw, matches!(state, SlotState::Approved | SlotState::Available));
                }
                Change::Missing => panic!("it was found"),
            }
        }
    }

    #[test]
    fn what_is_gone_is_missing() {
        assert_eq!(plan(&[slot(0, "a", SlotState::Available)], &[]).known, [(0, Change::Missing)]);
    }
}
