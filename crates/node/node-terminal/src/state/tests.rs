//! The state of a session, step by step.

use super::*;

const GRACE: Duration = Duration::from_secs(120);

fn state() -> State {
    State::new(8, GRACE, 3)
}

fn data(text: &'static str) -> Next {
    Next::Frame(Frame::Data(Bytes::from_static(text.as_bytes())))
}

#[test]
fn output_is_held_while_a_writer_is_attached_and_for_the_grace_period_after() {
    let (mut state, now) = (state(), Instant::now());
    assert_eq!(state.plan(now).room, 8, "nobody needs anything");
    let (writer, role) = state.join(PtyAccess::Write).unwrap();
    state.begin(writer, 0).unwrap();
    state.push_output(b"01234567");
    assert_eq!(state.plan(now).room, 0);
    assert_eq!(state.next_output(writer, role), data("01234567"));
    assert_eq!(state.plan(now).room, 0, "sent is not received");
    state.acknowledge(writer, 3).unwrap();
    state.acknowledge(writer, 1).unwrap();
    assert_eq!(state.plan(now).room, 3, "an acknowledgement never goes back");
    assert!(state.acknowledge(writer, 9).is_err());
    state.leave(writer, false, now);
    let plan = state.plan(now);
    assert_eq!((plan.room, plan.until), (3, Some(now + GRACE)));
    assert_eq!(state.plan(now + GRACE).room, 8);
}

#[test]
fn who_leaves_on_purpose_needs_nothing_kept_and_a_later_writer_all_that_is_there() {
    let (mut state, now) = (state(), Instant::now());
    let (writer, _) = state.join(PtyAccess::Write).unwrap();
    state.leave(writer, true, now);
    assert_eq!(state.plan(now).room, 8);
    state.push_output(b"0123456789");
    let (writer, role) = state.join(PtyAccess::Write).unwrap();
    assert_eq!(state.plan(now).room, 0, "it has not said yet what it has");
    assert!(state.begin(writer, 11).is_err());
    assert_eq!(state.begin(writer, 1), Ok(2));
    assert_eq!(state.next_output(writer, role), data("23456789"));
}

#[test]
fn a_window_full_of_typed_bytes_counts_what_was_sent_as_acknowledged() {
    let (mut state, now) = (state(), Instant::now());
    let (writer, role) = state.join(PtyAccess::Write).unwrap();
    state.begin(writer, 0).unwrap();
    state.push_output(b"0123");
    state.next_output(writer, role);
    state.push_output(b"4567");
    assert_eq!(state.plan(now).room, 0);
    state.set_window_full(writer, true);
    assert_eq!(state.plan(now).room, 4, "what was not sent is held all the same");
    state.set_window_full(writer, false);
    assert_eq!(state.plan(now).room, 0);
}

#[test]
fn input_of_a_writer_that_was_replaced_is_not_taken_for_that_of_the_next() {
    let (mut state, now) = (state(), Instant::now());
    let (first, _) = state.join(PtyAccess::Write).unwrap();
    assert!(state.type_input(first, Bytes::from_static(b"former")));
    let former = state.plan(now).input.unwrap();
    let (second, _) = state.join(PtyAccess::TakeOver).unwrap();
    assert!(!state.type_input(first, Bytes::from_static(b"late")));
    assert!(state.type_input(second, Bytes::from_static(b"next")));
    state.input_taken(&former, 6);
    assert_eq!(state.consumed_input(second), 0);
    let next = state.plan(now).input.unwrap();
    assert_eq!(next.bytes, "next");
    state.input_taken(&next, 3);
    assert_eq!((state.consumed_input(first), state.consumed_input(second)), (0, 3));
    assert_eq!(state.plan(now).input.unwrap().bytes, "t");
    state.discard_input();
    assert_eq!(state.consumed_input(second), 1);
    assert!(state.plan(now).input.is_none());
}
