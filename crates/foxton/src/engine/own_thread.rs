//! Threads of the database itself, and why no drop waits for the thread that it runs on.
//!
//! Some of these threads wake tasks, and a waker may own its task. Then waking can drop the task,
//! and with it the last handle of a database, on a thread that closing waits for. So a handle that
//! is dropped there is closed by a [thread of its own](close_elsewhere).

use std::thread::{self, JoinHandle};

/// Names of the threads that may run a waker. The threads of other databases count too, because two
/// databases could otherwise wait for each other.
const WAKE_TASKS: [&str; 5] = [
    "foxton-background",
    "foxton-checkpoint",
    "foxton-idle",
    "foxton-pages",
    // The flusher of the log, which may hold the writer lock meanwhile.
    "foxton-log",
];

/// True if the calling thread must not wait for a database to close.
pub(crate) fn is_current() -> bool {
    let current = thread::current();
    current
        .name()
        .is_some_and(|name| WAKE_TASKS.contains(&name))
}

/// Joins a thread, unless the calling thread is that thread. A panic in it is not passed on.
pub(crate) fn join(thread: JoinHandle<()>) {
    if thread.thread().id() != thread::current().id() {
        let _ = thread.join();
    }
}

/// Runs `close` on a new thread, which the program cannot wait for. Without a thread `close` is
/// dropped.
pub(crate) fn close_elsewhere(close: impl FnOnce() + Send + 'static) {
    let _ = thread::Builder::new()
        .name("foxton-close".into())
        .spawn(close);
}
