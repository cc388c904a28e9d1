//! The terminal of whoever watches a replay.

use std::io::IsTerminal as _;

use crate::output::write_bytes;

/// Takes back what [`recording::DrawingFilter`] lets pass and what outlasts a program: synchronized output, the alternate screen,
/// sets of characters, reverse video, origin mode, no wrapping, inserting, the scroll region, tab stops, the shape of the cursor
/// or a hidden one, and colours. That moves the cursor, so it goes to a new line at the bottom: nothing is written over.
const RESTORE_SCREEN: &[u8] =
    b"\x1b[?2026l\x1b[?1049l\x0f\x1b(B\x1b)B\x1b[?5l\x1b[?6l\x1b[?7h\x1b[4l\x1b[r\x1b[?5W\
    \x1b[0 q\x1b[?25h\x1b[0m\x1b[9999;1H\r\n";

/// Restores the screen with its end, also when the replay fails or is given up.
pub struct ScreenGuard(());

impl ScreenGuard {
    /// Nothing where output is no terminal.
    pub fn of_stdout() -> Option<Self> {
        std::io::stdout().is_terminal().then(|| Self(()))
    }
}

impl Drop for ScreenGuard {
    fn drop(&mut self) {
        // A terminal that is gone has no screen.
        let _ = write_bytes(RESTORE_SCREEN);
    }
}
