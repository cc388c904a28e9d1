//! What other domains may use.

pub use crate::{
    Fleet,
    model::{
        credit_finding::CreditFinding,
        inventory::{NodeInventory, SlotFacts},
        node::NodeState,
        occupant::{NodeOccupant, NodeOccupants, OccupantState},
        slot::{SlotKind, SlotState},
        waiter::{Waiter, Waiting},
    },
    service::{
        completion::{CompletedTask, Completion, TaskEnding},
        credits::{credit_finding_lock, credit_findings_open},
        grants::GrantRequest,
        inventories::{
            node_inventories, node_is_simulated, nodes_compared, nodes_simulated, nodes_uncompared,
            nodes_unheard, slot_facts,
        },
        key_waits::node_key_blocker,
        logs::node_require,
        node_identity::{Rekey, node_rekey},
        nodes::cordon_once,
        occupancy::Occupancy,
        orders::{ORDER_LATE, OrderedRequest, OrderedWork},
        slot_steps::{
            slots_block, slots_clean, slots_cleaned, slots_doubt, slots_force_cleaned, slots_occupy,
            slots_retry_cleaning, slots_unreserve,
        },
        tasks::TaskRequest,
        tunnels::{ReachError, Tunnels},
        validations::node_validation_record,
    },
};
