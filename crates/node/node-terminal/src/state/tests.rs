//! The state of a session, step by step.

use std::time::Duration;

use super::*;

const GRACE: Duration = Duration::from_secs(120);
const RULES: Rules = Rules { scrollback: 8, ring: 8, grace: GRACE, most_attached: 3, recorded: false };

fn state() -> State {
    State::new(RULES)
}

fn data(text: &'static str) -> Next {
    Next::Frame(Frame::Data(Bytes::from_static(text.as_bytes())))
}

#[test]
fn output_is_held_while_a_writer_is_attached_and_for_the_grace_period_after() {
    let (mut state, now) = (state(), Instant::now());
    assert_eq!(state.plan(now).room, 8, "nobody needs anything");
    let (writer, role) = state.join(PtyAccess::Write, false).unwrap();
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
    let (writer, _) = state.join(PtyAccess::Write, false).unwrap();
    state.leave(writer, true, now);
    assert_eq!(state.plan(now).room, 8);
    state.push_output(b"0123456789");
    let (writer, role) = state.join(PtyAccess::Write, false).unwrap();
    assert_eq!(state.plan(now).room, 0, "it has not said yet what it has");
    assert!(state.begin(writer, 11).is_err());
    assert_eq!(state.begin(writer, 1), Ok(2));
    assert_eq!(state.next_output(writer, role), data("23456789"));
}

#[test]
fn a_window_full_of_typed_bytes_counts_what_was_sent_as_acknowledged() {
    let (mut state, now) = (state(), Instant::now());
    let (writer, role) = state.join(PtyAccess::Write, false).unwrap();
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
    let (first, _) = state.join(PtyAccess::Write, false).unwrap();
    assert!(state.type_input(first, Bytes::from_static(b"former")));
    let former = state.plan(now).input.unwrap();
    let (second, _) = state.join(PtyAccess::TakeOver, false).unwrap();
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

#[test]
fn a_watcher_of_a_recorded_session_sees_only_what_is_recorded() {
    let (mut state, now) = (State::new(Rules { recorded: true, ..RULES }), Instant::now());
    let (writer, role) = state.join(PtyAccess::Write, true).unwrap();
    let (watcher, watches) = state.join(PtyAccess::Watch, true).unwrap();
    state.begin(writer, 0).unwrap();
    assert_eq!(state.begin(watcher, 0), Ok(0));
    state.push_output(b"0123");
    assert_eq!(state.next_output(writer, role), data("0123"));
    assert_eq!(state.next_output(watcher, watches), Next::Wait, "sent is not recorded");
    state.note_recorded(watcher, 0).unwrap();
    assert_eq!(state.next_output(watcher, watches), Next::Wait, "watching records nothing");
    assert!(state.note_recorded(writer, 5).is_err(), "it was not sent");
    assert_eq!(state.watchers_limit(), Some(0));
    state.note_recorded(writer, 4).unwrap();
    state.note_recorded(writer, 3).unwrap();
    assert_eq!(state.watchers_limit(), Some(4), "it never goes back");
    assert_eq!(state.next_output(watcher, watches), data("0123"));
    // The writer leaves; what is printed then waits for the next one, also when it does not all stay.
    state.leave(writer, true, now);
    state.push_output(b"456789abcdef");
    assert_eq!(state.next_output(watcher, watches), Next::Wait);
    let (late, _) = state.join(PtyAccess::Watch, true).unwrap();
    assert_eq!(state.begin(late, 0), Ok(4), "where it goes on is known");
    assert_eq!(
        state.next_output(late, watches),
        Next::Wait,
        "and is not seen before a writer's gateway records"
    );
    let (writer, role) = state.join(PtyAccess::Write, true).unwrap();
    assert_eq!(state.begin(writer, 4), Ok(8));
    assert_eq!(state.next_output(writer, role), data("89abcdef"));
    state.acknowledge(writer, 16).unwrap();
    assert_eq!(state.next_output(watcher, watches), Next::Frame(Frame::Ack { sequence: 8 }));
    assert_eq!(state.next_output(watcher, watches), data("89abcdef"));
    // The end comes after the last output.
    state.push_output(b"gh");
    state.set_end(End::Exited(0));
    assert_eq!(state.next_output(watcher, watches), Next::Wait, "the writer is about to be sent it");
    assert_eq!(state.next_output(writer, role), data("gh"));
    state.leave(writer, false, now);
    assert_eq!(
        state.next_output(watcher, watches),
        Next::Last(Frame::Exit { status: 0 }),
        "its gateway may have lost it"
    );
    // Whoever asks to write reads what is left of an ended session, and is recorded.
    let (reader, role) = state.join(PtyAccess::Write, true).unwrap();
    assert_eq!((state.begin(reader, 16), role), (Ok(16), Role::Watcher));
    assert_eq!(state.next_output(reader, role), data("gh"));
    assert_eq!(state.next_output(reader, role), Next::Last(Frame::Exit { status: 0 }));
    assert_eq!(state.next_output(watcher, watches), Next::Wait);
    state.note_recorded(reader, 18).unwrap();
    assert_eq!(state.next_output(watcher, watches), data("gh"));
    assert_eq!(state.next_output(watcher, watches), Next::Last(Frame::Exit { status: 0 }));
}

#[test]
fn a_session_that_is_recorded_from_some_time_on_shows_watchers_no_more_than_that() {
    let mut state = state();
    let (watcher, watches) = state.join(PtyAccess::Watch, false).unwrap();
    state.begin(watcher, 0).unwrap();
    state.push_output(b"01");
    let (writer, role) = state.join(PtyAccess::Write, true).unwrap();
    state.begin(writer, 0).unwrap();
    state.push_output(b"23");
    assert_eq!(state.next_output(watcher, watches), data("01"), "that was before");
    assert_eq!(state.next_output(watcher, watches), Next::Wait);
    state.next_output(writer, role);
    state.note_received(writer, 4).unwrap();
    assert_eq!(state.next_output(watcher, watches), data("23"));
}

#[test]
fn the_task_is_woken_by_an_acknowledgement_only_when_it_waits_for_room() {
    let (mut state, now) = (state(), Instant::now());
    let (writer, role) = state.join(PtyAccess::Write, false).unwrap();
    state.begin(writer, 0).unwrap();
    state.push_output(b"0123");
    state.next_output(writer, role);
    state.plan(now);
    assert_eq!(state.acknowledge(writer, 1), Ok(false));
    state.push_output(b"45678");
    state.plan(now);
    assert_eq!(state.acknowledge(writer, 2), Ok(true));
}

#[test]
fn what_was_received_makes_room_and_is_kept_until_it_is_acknowledged() {
    let (mut state, now) = (State::new(Rules { scrollback: 4, ring: 10, ..RULES }), Instant::now());
    let (writer, role) = state.join(PtyAccess::Write, false).unwrap();
    state.begin(writer, 0).unwrap();
    state.push_output(b"0123");
    assert_eq!(state.plan(now).room, 0, "four bytes are not seen");
    state.next_output(writer, role);
    assert!(state.note_received(writer, 5).is_err(), "it was not sent");
    assert_eq!(state.note_received(writer, 4), Ok(true));
    assert_eq!(state.plan(now).room, 4);
    state.push_output(b"4567");
    state.next_output(writer, role);
    state.note_received(writer, 8).unwrap();
    assert_eq!(state.plan(now).room, 2, "ten bytes are kept, and none was acknowledged");
    state.leave(writer, false, now);
    let (writer, role) = state.join(PtyAccess::Write, false).unwrap();
    assert_eq!(state.begin(writer, 0), Ok(0), "all of it can be asked for again");
    assert_eq!(state.next_output(writer, role), data("01234567"));
    state.acknowledge(writer, 8).unwrap();
    state.push_output(b"8");
    assert_eq!(
        (state.plan(now).room, state.begin(writer, 0)),
        (3, Ok(5)),
        "then only the last four are kept"
    );
}
