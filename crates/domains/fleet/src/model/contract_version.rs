//! The version of the node contract that an agent speaks.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ContractVersion {
    pub major: u16,
    pub minor: u16,
}

impl ContractVersion {
    /// [`node_proto::contract::PREVIOUS_CONTRACT`], the oldest that is tested.
    pub const PREVIOUS: Self = Self { major: 1, minor: 1 };
    /// From this one on nodes dial gateways.
    pub const FIRST_WITH_DIAL: Self = Self { major: 1, minor: 2 };

    pub fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.trim().split_once('.')?;
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }

    pub fn dials(self) -> bool {
        self >= Self::FIRST_WITH_DIAL
    }
}

impl fmt::Display for ContractVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use node_proto::contract::{CONTRACT, PREVIOUS_CONTRACT};

    use super::*;

    #[test]
    fn agents_of_this_version_dial_and_those_of_the_previous_one_do_not() {
        let dials = |text| ContractVersion::parse(text).map(ContractVersion::dials);
        assert_eq!((dials(CONTRACT), dials(PREVIOUS_CONTRACT)), (Some(true), Some(false)));
        assert_eq!(
            (dials("1.10"), dials("2.0"), dials("1"), dials("")),
            (Some(true), Some(true), None, None)
        );
        assert_eq!(ContractVersion::PREVIOUS.to_string(), PREVIOUS_CONTRACT);
    }
}
