//! The seed decides everything that is chance.

use std::time::Duration;

use node_sim::{
    dice::{Dice, Purpose},
    plan::{Faults, Plan},
};

fn throws(seed: u64, node: u64, purpose: Purpose) -> Vec<u64> {
    let dice = Dice::new(seed, node, purpose);
    (0..64).map(|_| dice.throw()).collect()
}

#[test]
fn the_same_seed_throws_the_same_and_any_other_does_not() {
    let first = throws(7, 3, Purpose::Wire);
    assert_eq!(first, throws(7, 3, Purpose::Wire));
    for other in [throws(8, 3, Purpose::Wire), throws(7, 4, Purpose::Wire), throws(7, 3, Purpose::Tasks)] {
        assert!(first.iter().zip(&other).all(|(a, b)| a != b));
    }
}

#[test]
fn natures_follow_from_seed_and_number_alone() {
    let faults = Faults { skew: 0.5, flap: 0.5, ..Faults::default() };
    let plan = |seed| Plan { seed, faults, ..Plan::default() };
    let natures = |seed| (0..200).map(|n| plan(seed).nature("sim", n)).collect::<Vec<_>>();
    assert_eq!(natures(1), natures(1));
    assert_ne!(natures(1), natures(2));
    let skewed = natures(1).iter().filter(|nature| !nature.skew.is_zero()).count();
    let flapping = natures(1).iter().filter(|nature| nature.flaps).count();
    assert!((60..140).contains(&skewed) && (60..140).contains(&flapping), "{skewed} {flapping}");
    let most = Duration::from_secs(plan(1).extents.skew_seconds.into());
    assert!(natures(1).iter().all(|nature| nature.skew.abs().to_std().unwrap() <= most));
    let calm = Plan { seed: 1, ..Plan::default() };
    assert!((0..200).all(|n| calm.nature("sim", n).skew.is_zero() && !calm.nature("sim", n).flaps));
}
