//! What the people of a project read about a failure: one of these sentences, and nothing about where their machine
//! stands. Whatever else is known goes to the log and to the node's tasks, for operators.

pub const SILENT: &str = "the machine did not answer in time";
pub const INTERRUPTED: &str = "the machine stopped half-way";
pub const BUSY: &str = "the machine was not ready for it";
pub const DRAINED: &str = "the machine was being taken out of service";
pub const FAILED: &str = "the machine could not do it";
pub const REFUSED: &str = "the machine refused it";
pub const STOPPED: &str = "an operator stopped it";
pub const UNREADABLE: &str = "the machine gave an answer that makes no sense";
pub const SICK: &str = "the machine did not pass its check";
pub const GPUS_MISSING: &str = "not all GPUs work";
pub const NOT_PROVEN: &str = "the machine could not prove that it is clean";
pub const NOT_INSTALLED: &str = "the machine could not be installed anew";
pub const NO_NEW_KEY: &str = "the machine has not made a new key for itself in time";
pub const MOVED_ON: &str = "the allocation is no longer in the state that this needs";
pub const NO_ORDER: &str = "nobody has ordered it; ask for it again";
pub const LATE: &str = "the time in which it was authorised is over; ask for it again";
/// Of a phase, not of a failure.
pub const KEY_ASKED: &str = "the machine makes a new key for itself before anybody else gets it";
const TOO_LONG: &str = "the run took longer than it may";
const INTERNAL: &str = "an internal error; it is being looked at";

const ALL: &[&str] = &[
    SILENT,
    INTERRUPTED,
    BUSY,
    DRAINED,
    FAILED,
    REFUSED,
    STOPPED,
    UNREADABLE,
    SICK,
    GPUS_MISSING,
    NOT_PROVEN,
    NOT_INSTALLED,
    NO_NEW_KEY,
    MOVED_ON,
    NO_ORDER,
    LATE,
    TOO_LONG,
];

/// The sentence for the failure of a run. Only known ones leave: text of errors can name anything.
pub fn plain(failure: Option<&str>) -> String {
    let failure = failure.unwrap_or_default();
    if let Some(reason) = failure.strip_prefix("cancelled: ") {
        return first_of(reason).to_owned();
    }
    let known = ALL.iter().filter_map(|sentence| failure.find(sentence).map(|at| (at, *sentence)));
    known.min().map_or(INTERNAL, |(_, sentence)| sentence).to_owned()
}

/// Whether the machine itself is what did not work.
pub fn is_machines_fault(reason: &str) -> bool {
    [SICK, GPUS_MISSING, FAILED, UNREADABLE, INTERRUPTED].contains(&reason)
}

/// Without what was added when it could not be taken back either.
fn first_of(reason: &str) -> &str {
    let added = reason.find(" could not be taken back: ");
    let end = added.and_then(|added| reason.get(..added)).and_then(|before| before.rfind("; "));
    end.and_then(|end| reason.get(..end)).unwrap_or(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_sentences_and_the_words_of_a_cancellation_leave() {
        let silent = format!("account: {SILENT} (expired)");
        assert_eq!(plain(Some(&silent)), SILENT);
        let both = format!("account: {FAILED} (driver); account could not be taken back: {SILENT}");
        assert_eq!(plain(Some(&both)), FAILED);
        assert_eq!(plain(Some("begin: connection to db-7.internal lost")), INTERNAL);
        assert_eq!(plain(None), INTERNAL);
        assert_eq!(
            plain(Some("cancelled: cancelled by its owner; too slow")),
            "cancelled by its owner; too slow"
        );
        let stuck = format!("cancelled: cancelled by its owner; account could not be taken back: {SILENT}");
        assert_eq!(plain(Some(&stuck)), "cancelled by its owner");
    }
}
