//! Cancel signals: a signal handler cancels a token.
//!
//! # Why a handler cannot cancel by itself
//!
//! A handler interrupts its thread anywhere, also while the thread has a mutex or allocates. If the
//! handler then needs the same mutex, the thread waits for itself. Ending a wait takes the mutex of
//! the token and latches of the lock manager, and it may wake a task. So a handler only sets the
//! flag of the token and writes one byte to a pipe, both of which are async-signal-safe. A thread
//! that reads the pipe cancels the token.
//!
//! # Invariants
//!
//! * I1  At most one byte is written, so the pipe has space and the write never blocks.
//! * I2  The thread reads the pipe until it has cancelled the token, or the pipe is closed, because
//!   its signal was dropped. So a byte always finds its reader.

use std::fmt;
use std::io::{ErrorKind, PipeReader, PipeWriter, Read, Write, pipe};
use std::thread;

use foxton_sync::shim::{AtomicBool, Ordering};

use super::cancel_token::CancelToken;
use crate::error::{Result, Storage};

/// Cancels a [`CancelToken`] from a signal handler. [`CancelToken::signal`] makes it.
///
/// ```
/// use foxton::{CancelSignal, CancelToken};
/// use std::sync::OnceLock;
///
/// static STOP: OnceLock<CancelSignal> = OnceLock::new();
///
/// /// The program installs it, with `sigaction`.
/// extern "C" fn on_interrupt(_signal: i32) {
///     if let Some(stop) = STOP.get() {
///         stop.raise();
///     }
/// }
///
/// let token = CancelToken::new();
/// STOP.set(token.signal()?).expect("set once");
/// on_interrupt(2);
/// assert!(token.is_cancelled());
/// # Ok::<(), foxton::Error>(())
/// ```
pub struct CancelSignal {
    token: CancelToken,
    is_raised: AtomicBool,
    wakeup: PipeWriter,
}

impl fmt::Debug for CancelSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelSignal")
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}

impl CancelToken {
    /// Returns a handle by which a signal handler cancels this token, and starts a thread that
    /// sleeps until then. The thread ends when the token is cancelled by the handle, or when the
    /// handle is dropped.
    ///
    /// # Errors
    /// A storage error, if the process has no file descriptor or no thread left.
    pub fn signal(&self) -> Result<CancelSignal> {
        let failed = |source| Storage::Io {
            doing: "start the thread that cancels transactions for a signal handler".to_owned(),
            source,
        };
        let (reader, wakeup) = pipe().map_err(failed)?;
        let token = self.clone();
        thread::Builder::new()
            .name("foxton-cancel".into())
            .spawn(move || cancel_when_raised(reader, &token))
            .map_err(failed)?;
        Ok(CancelSignal {
            token: self.clone(),
            is_raised: AtomicBool::new(false),
            wakeup,
        })
    }
}

impl CancelSignal {
    /// Cancels the token; a second call does nothing. Async-signal-safe: it stores two flags and
    /// writes one byte to a pipe, and neither locks, allocates nor waits.
    ///
    /// From then on the token [is cancelled](CancelToken::is_cancelled), so transactions refuse
    /// their next operation. A moment later the thread ends the waits in progress. Create and drop
    /// the handle outside handlers, because both allocate or free memory.
    pub fn raise(&self) {
        self.token.set_cancelled();
        // Relaxed: it only limits the bytes to one (I1).
        // Site: "cancel token", but a handler has no worker to count it.
        if !self.is_raised.swap(true, Ordering::Relaxed) {
            let _ = (&self.wakeup).write(&[1]); // I2
        }
    }
}

fn cancel_when_raised(mut reader: PipeReader, token: &CancelToken) {
    loop {
        match reader.read(&mut [0]) {
            Ok(1..) => return token.cancel(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => return,
        }
    }
}
