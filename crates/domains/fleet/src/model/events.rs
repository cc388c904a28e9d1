//! What the fleet tells the rest of the product.

use bus::asyncapi::EventDoc;
use kernel::{Event, Stream, ids::NodeId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

macro_rules! node_events {
    ($($name:ident = $type:literal, $summary:literal;)*) => {
        $(
            #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
            pub struct $name {
                pub node_id: NodeId,
                pub region: String,
                pub reason: String,
            }
            impl Event for $name {
                const TYPE: &'static str = $type;
                const STREAM: Stream = Stream::Nodes;
                const SUMMARY: &'static str = $summary;
            }
        )*
        /// Every event of a node's state, for the document.
        pub fn docs() -> Vec<EventDoc> {
            vec![$(EventDoc::of::<$name>()),*]
        }
    };
}

node_events! {
    NodeEnrolled = "nodes.enrolled", "A node proved who it is for the first time.";
    NodeActivated = "nodes.activated", "A node may serve tenants.";
    NodeOffline = "nodes.offline", "A node has not reported for a while.";
    NodeRecovered = "nodes.recovered", "A node reports again, or left quarantine.";
    NodeQuarantined = "nodes.quarantined", "A node was taken out of service because of a finding or by an operator.";
    NodeDraining = "nodes.draining", "A node takes no new work and waits for the old to end.";
    NodeRetired = "nodes.retired", "A node left service.";
    NodeDeleted = "nodes.deleted", "A node is no longer part of the fleet.";
}
