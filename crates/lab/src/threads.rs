//! Threads that begin together, or not at all: a system that cannot start more threads causes an
//! error, not the end of the program.

use std::{
    fmt, io,
    panic::resume_unwind,
    sync::{Condvar, Mutex, PoisonError},
    thread::{self, Builder},
};

/// The system did not start another thread. The threads that it did start have done nothing.
#[derive(Debug)]
pub struct NotStarted {
    /// Threads that were started.
    pub started: usize,
    /// Threads wanted.
    pub wanted: usize,
    /// The system's error.
    pub cause: io::Error,
}

impl fmt::Display for NotStarted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "only {} of {} threads could be started ({}): ask for fewer or raise the limit on processes \
             (ulimit -u)",
            self.started, self.wanted, self.cause
        )
    }
}

impl std::error::Error for NotStarted {}

/// Barrier where threads wait until all have been started, or starting has failed.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    opened: Mutex<Option<bool>>,
    changed: Condvar,
}

impl Gate {
    /// Waits until it opens; true to continue.
    pub(crate) fn wait(&self) -> bool {
        let guard = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = self.changed.wait_while(guard, |opened| opened.is_none());
        *opened.unwrap_or_else(PoisonError::into_inner) == Some(true)
    }

    /// Opens it: all threads continue, or all end.
    pub(crate) fn open(&self, go_on: bool) {
        *self.opened.lock().unwrap_or_else(PoisonError::into_inner) = Some(go_on);
        self.changed.notify_all();
    }
}

/// Runs each of `bodies` in a thread of its own, all at once, and `meanwhile` in this one. Returns
/// their results in order.
///
/// # Errors
///
/// If the system does not start them all; then no body has run.
///
/// # Panics
///
/// If a body does.
pub(crate) fn together<T: Send, R>(
    bodies: Vec<impl FnOnce() -> T + Send>,
    meanwhile: impl FnOnce() -> R,
) -> Result<(Vec<T>, R), NotStarted> {
    built_by(|_| Builder::new(), bodies, meanwhile)
}

fn built_by<T: Send, R>(
    builder: impl Fn(usize) -> Builder,
    bodies: Vec<impl FnOnce() -> T + Send>,
    meanwhile: impl FnOnce() -> R,
) -> Result<(Vec<T>, R), NotStarted> {
    let (gate, wanted) = (Gate::default(), bodies.len());
    thread::scope(|scope| {
        let mut threads = Vec::with_capacity(wanted);
        for (started, body) in bodies.into_iter().enumerate() {
            let gate = &gate;
            let body = move || gate.wait().then(body);
            match builder(started).spawn_scoped(scope, body) {
                Ok(thread) => threads.push(thread),
                Err(cause) => {
                    gate.open(false);
                    return Err(NotStarted {
                        started,
                        wanted,
                        cause,
                    });
                }
            }
        }
        gate.open(true);
        let meanwhile = meanwhile();
        let ended = threads.into_iter().map(|thread| {
            let ended = thread.join().unwrap_or_else(|panic| resume_unwind(panic));
            ended.expect("the gate was opened for all")
        });
        Ok((ended.collect(), meanwhile))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_run_at_once_and_their_results_keep_their_order() {
        let meet = std::sync::Barrier::new(9);
        let body = |number: u32| {
            let meet = &meet;
            move || {
                meet.wait();
                number
            }
        };
        let (numbers, leader) = together((0..8).map(body).collect(), || {
            meet.wait();
            "here"
        })
        .unwrap();
        assert_eq!((numbers, leader), ((0..8).collect(), "here"));
    }

    #[test]
    fn if_one_cannot_be_started_none_runs() {
        let ran = Mutex::new(0);
        let bodies = (0..4).map(|_| || *ran.lock().unwrap() += 1).collect();
        // No address space has space for such a stack.
        let third_is_huge = |number| match number {
            2 => Builder::new().stack_size(1 << 60),
            _ => Builder::new(),
        };
        let error = built_by(third_is_huge, bodies, || ()).unwrap_err();
        assert_eq!((error.started, error.wanted), (2, 4));
        assert_eq!(*ran.lock().unwrap(), 0);
        assert!(error.to_string().contains("only 2 of 4 threads"), "{error}");
    }

    #[test]
    #[should_panic(expected = "row 7 is gone")]
    fn a_panic_comes_through() {
        let _ = together(vec![|| panic!("row 7 is gone")], || ());
    }
}
