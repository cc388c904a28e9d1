//! The modes of the local terminal.

use std::{io, os::fd::AsFd};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use super::protocol::Size;

/// The server refuses a terminal that has more columns or rows.
const MOST: u16 = 1000;
/// For a terminal that does not know its size.
const USUAL_SIZE: Size = Size { columns: 80, rows: 24 };

/// A terminal in raw mode: every key is a byte, nothing is echoed, output is not changed. Its former modes return with the
/// value, also when the program panics.
pub struct RawMode<T: AsFd> {
    tty: T,
    former: Termios,
}

impl<T: AsFd> RawMode<T> {
    pub fn enter(tty: T) -> io::Result<Self> {
        let former = tcgetattr(&tty)?;
        let mode = Self { tty, former };
        mode.resume()?;
        Ok(mode)
    }

    /// Raw mode once more: a shell that stopped this process has set its own modes.
    pub fn resume(&self) -> io::Result<()> {
        let mut raw = self.former.clone();
        raw.make_raw();
        Ok(tcsetattr(&self.tty, OptionalActions::Now, &raw)?)
    }
}

impl<T: AsFd> Drop for RawMode<T> {
    fn drop(&mut self) {
        // A terminal that is gone has no modes.
        let _ = tcsetattr(&self.tty, OptionalActions::Now, &self.former);
    }
}

pub fn size(tty: impl AsFd) -> Size {
    match tcgetwinsize(tty) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
            Size { columns: size.ws_col.min(MOST), rows: size.ws_row.min(MOST) }
        }
        _ => USUAL_SIZE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The modes that raw mode changes.
    fn modes(tty: impl AsFd) -> String {
        let modes = tcgetattr(tty).unwrap();
        format!("{:?} {:?} {:?}", modes.input_modes, modes.output_modes, modes.local_modes)
    }

    #[test]
    fn the_modes_return_with_the_value_and_after_a_panic() {
        let (_pty, tty) = pty_process::blocking::open().unwrap();
        let before = modes(&tty);
        let raw = RawMode::enter(&tty).unwrap();
        let inside = modes(&tty);
        assert_ne!(inside, before);
        tcsetattr(&tty, OptionalActions::Now, &raw.former).unwrap();
        raw.resume().unwrap();
        assert_eq!(modes(&tty), inside);
        drop(raw);
        assert_eq!(modes(&tty), before);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _raw = RawMode::enter(&tty).unwrap();
            panic!("somewhere inside");
        }));
        assert!(panicked.is_err());
        assert_eq!(modes(&tty), before);
    }

    #[test]
    fn the_size_is_that_of_the_terminal_or_the_usual_one() {
        let (pty, tty) = pty_process::blocking::open().unwrap();
        assert_eq!(size(&tty), USUAL_SIZE);
        pty.resize(pty_process::Size::new(50, 132)).unwrap();
        assert_eq!(size(&tty), Size { columns: 132, rows: 50 });
        pty.resize(pty_process::Size::new(50, 1_001)).unwrap();
        assert_eq!(size(&tty), Size { columns: 1_000, rows: 50 });
    }
}
