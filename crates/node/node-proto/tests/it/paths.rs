//! Paths of the contract.

use node_proto::contract::{ENROLL, RESULT};

#[test]
fn a_path_is_filled_in_order() {
    assert_eq!(RESULT.fill(&["n", "t"]), "/internal/v1/nodes/n/tasks/t/result");
    assert_eq!(ENROLL.fill(&[]), ENROLL.path);
}
