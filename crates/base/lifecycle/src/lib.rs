//! A lifecycle is one table: states × events → states, as data.
//!
//! A domain declares its table with [`lifecycle!`]. The store asks the table for the transition and applies
//! it with compare-and-swap; the database holds the same table (`lifecycle_transitions`) and a trigger that
//! refuses anything else; a test proves that both are equal. Diagrams in the docs are drawn from it.
//!
//! The names of states, and of kinds that have no lifecycle ([`named_enum!`]), are written down once, in these two
//! macros: what the API accepts and answers, its schema, and what a stored row may say come from there.

mod named;

pub use named::{Named, UnknownName, name_deserialize, name_parse, name_schema};
// For the code that the macros generate.
#[doc(hidden)]
pub use {schemars, serde};

/// One allowed step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition<S: 'static, E: 'static> {
    pub from: S,
    pub event: E,
    pub to: S,
}

pub trait Lifecycle: 'static {
    const NAME: &'static str;
    type State: Named;
    type Event: Named;
    const INITIAL: Self::State;
    const STATES: &'static [Self::State];
    const EVENTS: &'static [Self::Event];
    const TRANSITIONS: &'static [Transition<Self::State, Self::Event>];

    /// Where `event` leads from `from`, or nothing when it is not allowed there.
    fn next(from: Self::State, event: Self::Event) -> Option<Self::State> {
        Self::TRANSITIONS.iter().find(|t| t.from == from && t.event == event).map(|t| t.to)
    }

    /// The table in the form that the database holds, sorted.
    fn rows() -> Vec<(&'static str, &'static str)> {
        let mut rows: Vec<_> = Self::TRANSITIONS.iter().map(|t| (t.from.name(), t.to.name())).collect();
        rows.sort_unstable();
        rows.dedup();
        rows
    }

    /// A Mermaid state diagram for the docs.
    fn diagram() -> String {
        let mut out = format!("stateDiagram-v2\n    [*] --> {}\n", Self::INITIAL.name());
        for t in Self::TRANSITIONS {
            out += &format!("    {} --> {}: {}\n", t.from.name(), t.to.name(), t.event.name());
        }
        for state in Self::STATES {
            if Self::TRANSITIONS.iter().all(|t| t.from != *state) {
                out += &format!("    {} --> [*]\n", state.name());
            }
        }
        out
    }
}

/// Declares the state and event enums and their table in one place.
///
/// In documents the states have the name of their enum; `states State as "DoorState" { … }` gives them another. States
/// that are declared elsewhere, because an event carries them, are named only: `states DoorState;`.
#[macro_export]
macro_rules! lifecycle {
    (
        $(#[$doc:meta])* $table:ident = $name:literal, initial $initial:ident;
        states $state:ident $(as $schema:literal)? { $($s:ident = $sname:literal),* $(,)? }
        $($rest:tt)*
    ) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $state { $($s),* }
        $crate::names! { $state, concat!($name, " state"), $($s = $sname),* }
        $crate::wire_names! { $state, "" $(, $schema)? }
        impl $state {
            pub fn parse(name: &str) -> Option<Self> { match name { $($sname => Some(Self::$s),)* _ => None } }
        }
        $crate::lifecycle! { $(#[$doc])* $table = $name, initial $initial; states $state; $($rest)* }
    };
    (
        $(#[$doc:meta])* $table:ident = $name:literal, initial $initial:ident;
        states $state:ident;
        events $event:ident { $($e:ident = $ename:literal),* $(,)? }
        $($from:ident on $on:ident => $to:ident;)*
    ) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $event { $($e),* }
        $crate::names! { $event, concat!($name, " event"), $($e = $ename),* }
        $(#[$doc])*
        pub struct $table;
        impl $crate::Lifecycle for $table {
            const NAME: &'static str = $name;
            type State = $state;
            type Event = $event;
            const INITIAL: $state = $state::$initial;
            const STATES: &'static [$state] = <$state as $crate::Named>::VALUES;
            const EVENTS: &'static [$event] = &[$($event::$e),*];
            const TRANSITIONS: &'static [$crate::Transition<$state, $event>] =
                &[$($crate::Transition { from: $state::$from, event: $event::$on, to: $state::$to }),*];
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    lifecycle! {
        Door = "door", initial Open;
        states DoorState { Open = "open", Shut = "shut", Gone = "gone" }
        events DoorEvent { Push = "push", Pull = "pull", Burn = "burn" }
        Open on Push => Shut;
        Shut on Pull => Open;
        Shut on Burn => Gone;
    }

    #[test]
    fn every_pair_outside_the_table_is_refused() {
        let allowed: usize = Door::STATES
            .iter()
            .flat_map(|s| Door::EVENTS.iter().map(move |e| Door::next(*s, *e)))
            .filter(Option::is_some)
            .count();
        assert_eq!(allowed, Door::TRANSITIONS.len());
        assert_eq!(Door::next(DoorState::Open, DoorEvent::Burn), None);
        assert_eq!(DoorState::parse("shut"), Some(DoorState::Shut));
        assert!(Door::diagram().contains("gone --> [*]"));
    }

    #[test]
    fn an_event_leads_where_the_table_says_and_only_from_there() {
        use {DoorEvent as E, DoorState as S};
        for (from, event, to) in [
            (S::Open, E::Push, Some(S::Shut)),
            (S::Open, E::Pull, None),
            (S::Open, E::Burn, None),
            (S::Shut, E::Push, None),
            (S::Shut, E::Pull, Some(S::Open)),
            (S::Shut, E::Burn, Some(S::Gone)),
            (S::Gone, E::Push, None),
            (S::Gone, E::Pull, None),
            (S::Gone, E::Burn, None),
        ] {
            assert_eq!(Door::next(from, event), to, "{from:?} {event:?}");
        }
    }

    #[test]
    fn rows_and_diagram_hold_every_transition_once() {
        assert_eq!(Door::rows(), [("open", "shut"), ("shut", "gone"), ("shut", "open")]);
        let diagram = "stateDiagram-v2\n    [*] --> open\n    open --> shut: push\n    shut --> open: pull\n    \
                       shut --> gone: burn\n    gone --> [*]\n";
        assert_eq!(Door::diagram(), diagram);
    }

    #[test]
    fn a_state_is_its_name_in_json_and_in_the_schema() {
        let names: Vec<_> = Door::STATES.iter().map(|state| state.name()).collect();
        assert_eq!(serde_json::to_value(Door::STATES).unwrap(), serde_json::json!(names));
        assert_eq!(serde_json::from_str::<DoorState>("\"gone\"").unwrap(), DoorState::Gone);
        assert_eq!(
            schemars::schema_for!(DoorState).get("enum"),
            Some(&serde_json::json!(["open", "shut", "gone"]))
        );
        assert_eq!(DoorState::Shut.to_string(), "shut");
    }

    named_enum! { LampState = "lamp state" { Off = "off", On = "on" } }

    lifecycle! {
        Lamp = "lamp", initial Off;
        states LampState;
        events LampEvent { Press = "press" }
        Off on Press => On;
    }

    #[test]
    fn states_may_be_declared_elsewhere() {
        assert_eq!(Lamp::STATES, &LampState::ALL);
        assert_eq!(LampState::ALL.map(LampState::name), ["off", "on"]);
        assert_eq!(Lamp::next(LampState::Off, LampEvent::Press), Some(LampState::On));
    }

    #[test]
    fn an_unknown_state_is_an_error_that_names_it() {
        assert_eq!("shut".parse(), Ok(DoorState::Shut));
        let unknown = "ajar".parse::<DoorState>().unwrap_err();
        assert_eq!(unknown, UnknownName { kind: "door state", name: "ajar".to_owned() });
        assert_eq!(unknown.to_string(), "there is no door state named ajar");
        let refused = serde_json::from_str::<DoorState>("\"ajar\"").unwrap_err();
        assert!(
            refused.to_string().starts_with("unknown variant `ajar`, expected one of `open`, `shut`, `gone`")
        );
    }
}
