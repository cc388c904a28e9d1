//! What is to go wrong, how often, on which nodes: from a file, from flags, or nothing at all.

use std::{ops::RangeInclusive, str::FromStr, time::Duration};

use chrono::TimeDelta;
use serde::Deserialize;

use crate::{
    dice::{Dice, Purpose},
    script::Script,
};

/// How often things go wrong: from 0 (never) to 1 (always).
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// Of all messages: the connection breaks before it is sent, or before its answer comes.
    pub drop: f64,
    /// Of all messages: it is held up for `delay_ms` on top of the latency.
    pub delay: f64,
    /// Of all tasks, results and heartbeats: delivered twice.
    pub duplicate: f64,
    /// Of all phases of tasks: the agent dies there.
    pub crash: f64,
    /// Of all nodes: the clock is off by up to `skew_seconds`, in either direction.
    pub skew: f64,
    /// Of all writes of the journal: the disk is full from there on, for `disk_full_ms`.
    pub disk_full: f64,
    /// Of all tasks: the result is another task's, or of another shape.
    pub wrong_result: f64,
    /// Of all nodes: the network is cut every `flap_ms`, more or less.
    pub flap: f64,
}

/// How long things stay wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Extents {
    pub delay_ms: u64,
    pub skew_seconds: u32,
    pub disk_full_ms: u64,
    pub flap_ms: u64,
    pub restart_ms: u64,
}

impl Default for Extents {
    fn default() -> Self {
        Self { delay_ms: 2_000, skew_seconds: 240, disk_full_ms: 3_000, flap_ms: 20_000, restart_ms: 1_000 }
    }
}

/// Everything about a run that is chance, and the seed that decides it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Plan {
    pub seed: u64,
    pub latency_ms: Latency,
    /// How long a phase of a task takes.
    pub phase_ms: Latency,
    pub faults: Faults,
    pub extents: Extents,
    /// The first that fits a node's name replaces the faults of the fleet there.
    pub nodes: Vec<Override>,
    /// What goes wrong exactly, whatever the dice say.
    pub script: Script,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Override {
    /// A name, or the beginning of names followed by `*`.
    pub hostname: String,
    pub faults: Faults,
}

/// `5` or `0..50`, in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Latency(pub RangeInclusive<Duration>);

impl Default for Latency {
    fn default() -> Self {
        Self(Duration::ZERO..=Duration::ZERO)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("{0:?} is not a latency: give milliseconds, such as 5 or 0..50")]
    Latency(String),
    #[error("{0:?} is not a list of faults: give name=rate with commas, such as drop=0.01,crash=0.001")]
    List(String),
    #[error("there is no fault {0:?}; there are {names}", names = Faults::NAMES.join(", "))]
    Name(String),
    #[error("the rate of {0} must be from 0 to 1")]
    Rate(&'static str),
    #[error("the plan of faults is not valid: {0}")]
    File(String),
}

impl FromStr for Latency {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        let ms = |part: &str| part.trim().parse().map(Duration::from_millis).ok();
        let (low, high) = text.split_once("..").unwrap_or((text, text));
        match (ms(low), ms(high)) {
            (Some(low), Some(high)) if low <= high => Ok(Self(low..=high)),
            _ => Err(PlanError::Latency(text.to_owned())),
        }
    }
}

impl TryFrom<String> for Latency {
    type Error = PlanError;

    fn try_from(text: String) -> Result<Self, PlanError> {
        text.parse()
    }
}

impl Faults {
    pub const NAMES: [&'static str; 8] =
        ["drop", "delay", "duplicate", "crash", "skew", "disk_full", "wrong_result", "flap"];

    fn rates(&mut self) -> [&mut f64; 8] {
        [
            &mut self.drop,
            &mut self.delay,
            &mut self.duplicate,
            &mut self.crash,
            &mut self.skew,
            &mut self.disk_full,
            &mut self.wrong_result,
            &mut self.flap,
        ]
    }

    fn check(mut self) -> Result<(), PlanError> {
        let odd = Self::NAMES.into_iter().zip(self.rates()).find(|(_, rate)| !(0.0..=1.0).contains(*rate));
        odd.map_or(Ok(()), |(name, _)| Err(PlanError::Rate(name)))
    }

    /// `drop=0.01,crash=0.001`, on top of what is there.
    pub fn and(mut self, text: &str) -> Result<Self, PlanError> {
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let (name, rate) = item.split_once('=').ok_or_else(|| PlanError::List(text.to_owned()))?;
            let name = name.trim().replace('-', "_");
            let place = Self::NAMES.iter().position(|known| *known == name).ok_or(PlanError::Name(name))?;
            let rate = rate.trim().parse().map_err(|_| PlanError::List(text.to_owned()))?;
            if let Some(slot) = self.rates().into_iter().nth(place) {
                *slot = rate;
            }
        }
        self.check()?;
        Ok(self)
    }
}

impl Plan {
    pub fn read(text: &str) -> Result<Self, PlanError> {
        let plan: Self = toml::from_str(text).map_err(|error| PlanError::File(error.to_string()))?;
        plan.faults.check()?;
        plan.nodes.iter().try_for_each(|node| node.faults.check())?;
        plan.script.check().map_err(PlanError::File)?;
        Ok(plan)
    }

    /// What the node of this name and place in the fleet is like. The same every time.
    pub fn nature(&self, hostname: &str, node: u64) -> Nature {
        let fits = |other: &&Override| match other.hostname.strip_suffix('*') {
            Some(beginning) => hostname.starts_with(beginning),
            None => hostname == other.hostname,
        };
        let faults = self.nodes.iter().find(fits).map_or(self.faults, |other| other.faults);
        let dice = Dice::new(self.seed, node, Purpose::Nature);
        // Both are thrown always, so that one does not move the other.
        let (skewed, flaps) = (dice.share() < faults.skew, dice.share() < faults.flap);
        let most = self.extents.skew_seconds;
        let off = i64::try_from(dice.below(2 * u64::from(most) + 1)).unwrap_or(0) - i64::from(most);
        Nature { faults, skew: TimeDelta::seconds(if skewed { off } else { 0 }), flaps }
    }
}

/// One node's lot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Nature {
    pub faults: Faults,
    pub skew: TimeDelta,
    pub flaps: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_faults_are_read_and_nonsense_is_refused() {
        let faults = Faults::default().and("drop=0.01, wrong-result=1").unwrap();
        assert_eq!((faults.drop, faults.wrong_result, faults.crash), (0.01, 1.0, 0.0));
        assert_eq!(Faults::default().and("").unwrap(), Faults::default());
        for bad in ["drop", "drop=x", "drop=1.5", "drop=-1", "drop=NaN", "fire=0.1"] {
            assert!(Faults::default().and(bad).is_err(), "{bad}");
        }
        assert_eq!("0..50".parse(), Ok(Latency(Duration::ZERO..=Duration::from_millis(50))));
        assert!(["", "9..1", "x", "1..y", "-1"].iter().all(|bad| bad.parse::<Latency>().is_err()));
    }

    #[test]
    fn a_plan_names_single_nodes_and_groups_of_them() {
        let text = "seed = 7\nlatency_ms = '1..2'\n[faults]\ndrop = 0.5\n[[nodes]]\nhostname = 'sim-cpu-*'\nfaults = { crash = 1.0 }";
        let plan = Plan::read(text).unwrap();
        assert_eq!(plan.nature("sim-cpu-3", 3).faults, Faults { crash: 1.0, ..Faults::default() });
        assert_eq!(plan.nature("sim-h200-8-1", 1).faults.drop, 0.5);
        let script =
            Plan::read("[[script]]\ntask = 'slice.vm_release'\nat = 'disk'\ndoes = 'crash'").unwrap().script;
        assert_eq!(script.rules()[0].at, "disk");
        assert!(Plan::read("[[script]]\nat = 'lunch'").is_err());
        assert!(Plan::read("[faults]\nfire = 1.0").is_err() && Plan::read("[faults]\ndrop = 2.0").is_err());
    }
}
