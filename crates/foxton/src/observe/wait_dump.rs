//! Wait dumps: a thread checks for long waits and reports them.
//!
//! A check is cheap: it reads the records of owners and no queue. Only when a wait has lasted
//! longer than the limit does the thread capture a status, and not more often than
//! [`Options::dump_waits_every`] allows.
//!
//! [`Options::dump_waits_every`]: crate::Options::dump_waits_every

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use foxton_lock::manager::LockManager;
use foxton_sync::shim::{self, Condvar, Mutex};

use super::capture;
use crate::engine::{Engine, own_thread};
use crate::options::DumpTo;
use crate::status::WaitDump;

/// Limits of the time between two checks, which is otherwise a quarter of the limit.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(250));

/// A running thread; dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct Dumper {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Stop {
    asked: Mutex<bool>,
    news: Condvar,
}

impl Stop {
    /// Sleeps for `pause`; returns whether to stop.
    fn within(&self, pause: Duration) -> bool {
        let asked = shim::lock(&self.asked);
        let waited = self.news.wait_timeout_while(asked, pause, |asked| !*asked);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// The destination of dumps, opened.
enum Sink {
    Stderr,
    File(File),
    Call(crate::options::DumpCall),
}

impl Dumper {
    /// Starts watching the waits of `engine`, as its options say.
    pub(crate) fn start(engine: &Arc<Engine>, bound: Duration) -> io::Result<Dumper> {
        let mut sink = match &engine.options.dump_waits_to {
            DumpTo::Stderr => Sink::Stderr,
            DumpTo::File(path) => {
                Sink::File(OpenOptions::new().append(true).create(true).open(path)?)
            }
            DumpTo::Call(call) => Sink::Call(call.clone()),
        };
        let every = engine.options.dump_waits_every;
        let (stop, engine) = (Arc::new(Stop::default()), Arc::downgrade(engine));
        let asked = stop.clone();
        let thread = thread::Builder::new()
            .name("foxton-waits".into())
            .spawn(move || {
                let pause = (bound / 4).clamp(PAUSES.0, PAUSES.1);
                let mut last: Option<Instant> = None;
                while !asked.within(pause) {
                    if last.is_some_and(|last| last.elapsed() < every) {
                        continue;
                    }
                    let Some(dump) = look(&engine, bound) else {
                        continue;
                    };
                    last = Some(Instant::now());
                    sink.take(&dump);
                }
            })?;
        Ok(Dumper {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Dumper {
    fn drop(&mut self) {
        *shim::lock(&self.stop.asked) = true;
        self.stop.news.notify_one();
        // The callback may drop the last handle, on this very thread.
        if let Some(thread) = self.thread.take() {
            own_thread::join(thread);
        }
    }
}

/// Returns a dump if a wait has lasted for `bound`.
fn look(engine: &Weak<Engine>, bound: Duration) -> Option<WaitDump> {
    let engine = engine.upgrade()?;
    let longest = engine
        .locks
        .longest_wait(&engine.workers.background_worker())?;
    (longest >= bound).then(|| WaitDump {
        bound,
        longest,
        status: capture::status(&engine),
    })
}

impl Sink {
    fn take(&mut self, dump: &WaitDump) {
        // A dump that cannot be written is lost; the next one reports the same waits.
        match self {
            Sink::Stderr => _ = io::stderr().lock().write_all(dump.to_string().as_bytes()),
            Sink::File(file) => _ = file.write_all(dump.to_string().as_bytes()),
            Sink::Call(call) => {
                // The panic has printed its message; the thread continues watching.
                let _ = catch_unwind(AssertUnwindSafe(|| call.call(dump)));
            }
        }
    }
}
