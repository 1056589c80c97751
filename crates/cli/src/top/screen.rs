//! Terminal of `foxton top`: raw, on its other screen, without a cursor; and as it was before.
//!
//! **Problem.** The terminal must be restored however the program ends: by a key, an error, a panic
//! or a signal. It must also be restored while the program is stopped, and taken again afterwards.
//!
//! **Threads.** The main thread draws. The thread of the signals restores. `turn` keeps the one
//! from drawing on the screen that the other has restored. The thread of the signals keeps it until
//! the program has ended. It does not wait long for it, because a terminal that takes no more
//! output blocks a drawing thread.

use std::{
    ffi::c_int,
    io::{self, Write},
    panic,
    sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError},
    thread,
    time::{Duration, Instant},
};

use ratatui::{
    DefaultTerminal, Frame, Terminal,
    backend::CrosstermBackend,
    crossterm::{
        Command,
        cursor::{Hide, Show},
        terminal::{
            Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode,
            enable_raw_mode,
        },
    },
};
use signal_hook::{
    consts::{SIGCONT, SIGTSTP, SIGWINCH},
    low_level,
};

use crate::{output, signals};

/// Longest wait for a frame that is being drawn.
const PATIENCE: Duration = Duration::from_secs(1);

/// Whether the program has the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
    /// It has: the terminal is raw.
    Taken,
    /// The program is being stopped, and takes it again when it continues.
    Lent,
    /// Not yet, or not any more.
    Closed,
}

type Turn = Arc<Mutex<Hold>>;

/// The terminal, from its opening until it is dropped.
pub(super) struct Screen {
    terminal: DefaultTerminal,
    turn: Turn,
}

impl Screen {
    /// Takes the terminal.
    pub(super) fn open() -> Result<Screen, String> {
        let turn: Turn = Arc::new(Mutex::new(Hold::Closed));
        let seen = Arc::clone(&turn);
        signals::handle(&signals::ENDING, &[SIGTSTP, SIGCONT], move |signal| {
            on_signal(signal, &seen);
        })?;
        restore_on_panic(Arc::clone(&turn));
        let taken = take(&mut lock(&turn));
        let terminal = taken.and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())));
        let terminal = terminal.map_err(|error| {
            give_back(&turn, Hold::Closed);
            format!("this is not a terminal ({error}); --once prints one frame")
        })?;
        Ok(Screen { terminal, turn })
    }

    /// Draws a frame.
    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        let _turn = lock(&self.turn);
        self.terminal.draw(draw).map(drop)
    }

    /// Forgets the frame on the screen, because its size has changed or another program has drawn.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        let _turn = lock(&self.turn);
        send(Clear(ClearType::All))?;
        // `Terminal::clear` would ask the terminal for its cursor, and wait for the answer.
        self.terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back(&self.turn, Hold::Closed);
    }
}

fn on_signal(signal: c_int, turn: &Mutex<Hold>) {
    match signal {
        SIGTSTP => {
            drop(give_back(turn, Hold::Lent));
            let _ = low_level::emulate_default_handler(SIGTSTP);
        }
        SIGCONT => {
            // It may have been stopped by a signal that no program can handle.
            let mut hold = lock(turn);
            if *hold == Hold::Closed {
                return;
            }
            let _ = restore(&mut hold, Hold::Lent).and_then(|()| take(&mut hold));
            drop(hold);
            // The main thread waits for an event, and draws everything after this one.
            let _ = low_level::raise(SIGWINCH);
        }
        ending => {
            let _no_frame_after = give_back(turn, Hold::Closed);
            signals::end_by(ending);
        }
    }
}

/// Restores the terminal before the message of a panic.
fn restore_on_panic(turn: Turn) {
    let message = panic::take_hook();
    panic::set_hook(Box::new(move |about| {
        drop(give_back(&turn, Hold::Closed));
        message(about);
    }));
}

/// Restores the terminal as soon as no frame is being drawn. Returns the turn, so that none is
/// drawn after it. A terminal that cannot be restored is gone.
fn give_back(turn: &Mutex<Hold>, then: Hold) -> Option<MutexGuard<'_, Hold>> {
    let mut guard = lock_soon(turn);
    let mut stuck = Hold::Taken;
    let _ = restore(guard.as_deref_mut().unwrap_or(&mut stuck), then);
    guard
}

fn take(hold: &mut Hold) -> io::Result<()> {
    // Said first: half of it may have been done when it fails.
    *hold = Hold::Taken;
    enable_raw_mode()?;
    send(EnterAlternateScreen)?;
    send(Hide)
}

/// Restores the mode first, because that does not wait for the output. Does nothing if it is
/// restored, because leaving the other screen twice moves the cursor.
fn restore(hold: &mut Hold, then: Hold) -> io::Result<()> {
    match *hold {
        Hold::Closed => return Ok(()),
        Hold::Lent => {
            *hold = then;
            return Ok(());
        }
        Hold::Taken => *hold = then,
    }
    let cooked = disable_raw_mode();
    send(LeaveAlternateScreen)?;
    send(Show)?;
    cooked
}

/// Sends a command past the buffer of standard output, which a blocked thread may have locked.
fn send(command: impl Command) -> io::Result<()> {
    let mut text = String::new();
    command.write_ansi(&mut text).map_err(io::Error::other)?;
    output::descriptor()?.write_all(text.as_bytes())
}

fn lock(turn: &Mutex<Hold>) -> MutexGuard<'_, Hold> {
    turn.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The turn, or nothing if another thread keeps it for long.
fn lock_soon(turn: &Mutex<Hold>) -> Option<MutexGuard<'_, Hold>> {
    let begun = Instant::now();
    loop {
        match turn.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(guard)) => return Some(guard.into_inner()),
            Err(TryLockError::WouldBlock) if begun.elapsed() < PATIENCE => {
                thread::sleep(Duration::from_millis(1));
            }
            Err(TryLockError::WouldBlock) => return None,
        }
    }
}
