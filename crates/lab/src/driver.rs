//! The closed loop: clients as threads, each running one transaction after another without a pause.
//!
//! The window is fixed before the first transaction runs. Every client knows when it begins and
//! ends, and reads its own clock. All clients share one flag, which is written once, if the watcher
//! ends the run early, and is otherwise only read. So the driver's own communication is not
//! measured. A transaction counts if its end is in the window.
//!
//! # Invariants
//!
//! * I1  No client runs a transaction before every client is ready.
//! * I2  `run` returns: when the last client has reported, or `grace` after the window's end with
//!   [`DriverError::Stuck`](crate::driver::DriverError::Stuck). Threads that hang are left behind
//!   and not waited for.

use std::{
    any::Any,
    fmt,
    ops::ControlFlow,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use foxton_sync::shim::{AtomicBool, Ordering::Relaxed};

use crate::measure::{
    latency::Latency,
    memory::Shortage,
    outcome::{Ended, Outcome, Tally},
    run::Run,
    usage::Usage,
};

/// One client of the closed loop.
pub trait Client: Send {
    /// Runs one transaction to its acknowledged end, retries included.
    fn transaction(&mut self) -> Ended;
}

/// Times of a run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Time in which clients run and are not counted.
    pub ramp: Duration,
    /// Time in which clients run and are counted.
    pub window: Duration,
    /// Also count the window in slices of this length, at least a millisecond.
    pub slice: Option<Duration>,
    /// Time after the window's end in which a client may finish its last transaction.
    pub grace: Duration,
}

/// Why a run gave no result.
#[derive(Debug)]
pub enum DriverError {
    /// The system did not start another thread.
    Spawn {
        /// Clients that were started.
        started: usize,
        /// Clients that were requested.
        wanted: usize,
        /// The system's error.
        cause: std::io::Error,
    },
    /// Clients did not finish their last transaction.
    Stuck {
        /// Clients that did not finish.
        missing: usize,
        /// Clients that ran.
        clients: usize,
        /// Time that the driver waited for them.
        waited: Duration,
    },
    /// A client panicked.
    Panicked(String),
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DriverError::Spawn {
                started,
                wanted,
                cause,
            } => write!(
                f,
                "only {started} of {wanted} client threads could be started ({cause}): ask for a \
                 smaller MPL or raise the limit on processes (ulimit -u)"
            ),
            DriverError::Stuck {
                missing,
                clients,
                waited,
            } => write!(
                f,
                "{missing} of {clients} clients had not finished their last transaction \
                 {} s after the window's end",
                waited.as_secs()
            ),
            DriverError::Panicked(message) => write!(f, "a client panicked: {message}"),
        }
    }
}

impl std::error::Error for DriverError {}

/// The window; fixed once, when all clients are ready.
#[derive(Debug, Clone, Copy)]
struct Schedule {
    begin: Instant,
    end: Instant,
}

/// The place where clients wait for the schedule.
#[derive(Debug, Default)]
struct Gate {
    /// `None`: not yet. `Some(None)`: there will be no run.
    schedule: Mutex<Option<Option<Schedule>>>,
    opened: Condvar,
    /// True if the run was ended early. Relaxed: it only says when to stop, and publishes no data.
    over: AtomicBool,
}

impl Gate {
    fn wait(&self) -> Option<Schedule> {
        let guard = self.schedule.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = self.opened.wait_while(guard, |schedule| schedule.is_none());
        opened
            .unwrap_or_else(PoisonError::into_inner)
            .expect("waited until it was set")
    }

    fn open(&self, schedule: Option<Schedule>) {
        *self.schedule.lock().unwrap_or_else(PoisonError::into_inner) = Some(schedule);
        self.opened.notify_all();
    }
}

enum Report {
    Ready,
    Done(Box<Run>),
    Panicked(String),
}

// A client uses little stack: the engine keeps its state on the heap.
const STACK_BYTES: usize = 1 << 20;
const TICK: Duration = Duration::from_millis(50);
// A client that only fails would otherwise fail a million times a second.
const ERRORS_UNTIL_A_CLIENT_GIVES_UP: u64 = 100;

/// Runs `clients` by `plan` and adds up their measurements.
///
/// `watch` is called about twenty times a second with the time since the clients were started, and
/// once at the end of the window. It can end the run; then the measurements so far are returned,
/// with their window and the reason. `kinds` names the types of transaction that the clients run.
///
/// # Errors
///
/// If threads cannot be started, a client panics, or clients do not come back in time.
pub fn run(
    plan: &Plan,
    kinds: &'static [&'static str],
    clients: Vec<Box<dyn Client>>,
    mut watch: impl FnMut(Duration) -> ControlFlow<Shortage>,
) -> Result<Run, DriverError> {
    let count = clients.len();
    let gate = Arc::new(Gate::default());
    let (reports, inbox) = mpsc::channel();
    for (started, client) in clients.into_iter().enumerate() {
        if let Err(cause) = spawn(started, client, kinds, plan.slice, &gate, &reports) {
            gate.open(None);
            return Err(DriverError::Spawn {
                started,
                wanted: count,
                cause,
            });
        }
    }
    drop(reports);
    for _ in 0..count {
        // I1. A client sends `Ready` before anything that could panic.
        inbox.recv().expect("every client reports ready first");
    }
    let released = Instant::now();
    let begin = released + plan.ramp;
    let schedule = Schedule {
        begin,
        end: begin + plan.window,
    };
    gate.open(Some(schedule));

    let mut wait_until = |when| wait_until(when, released, &mut watch);
    let ramped = wait_until(schedule.begin);
    let before = Usage::now();
    let ended = ramped.is_continue().then(|| wait_until(schedule.end));
    let after = Usage::now();
    let cut = ended.unwrap_or(ramped).break_value();
    let end = match cut {
        None => schedule.end,
        Some(_) => {
            gate.over.store(true, Relaxed);
            Instant::now().min(schedule.end)
        }
    };
    let mut sum = collect(&inbox, count, end + plan.grace, plan.grace)?;
    sum.window = end.saturating_duration_since(begin);
    sum.cut = cut;
    sum.usage = after.zip(before).map(|(after, before)| after.since(before));
    Ok(sum)
}

fn wait_until(
    when: Instant,
    released: Instant,
    watch: &mut impl FnMut(Duration) -> ControlFlow<Shortage>,
) -> ControlFlow<Shortage> {
    loop {
        let left = when.saturating_duration_since(Instant::now());
        // Also called at the end, because on a busy machine this thread may have slept through the
        // window.
        watch(released.elapsed())?;
        if left.is_zero() {
            return ControlFlow::Continue(());
        }
        thread::sleep(left.min(TICK));
    }
}

fn collect(
    inbox: &Receiver<Report>,
    clients: usize,
    deadline: Instant,
    waited: Duration,
) -> Result<Run, DriverError> {
    let mut sum = Run::default();
    for missing in (1..=clients).rev() {
        let left = deadline.saturating_duration_since(Instant::now());
        match inbox.recv_timeout(left) {
            Ok(Report::Done(run)) => sum.add(&run),
            Ok(Report::Panicked(message)) => return Err(DriverError::Panicked(message)),
            Ok(Report::Ready) => unreachable!("every client was ready before the gate opened"),
            Err(RecvTimeoutError::Timeout) => {
                return Err(DriverError::Stuck {
                    missing,
                    clients,
                    waited,
                }); // I2
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(DriverError::Panicked(
                    "a client ended without a report".to_owned(),
                ));
            }
        }
    }
    Ok(sum)
}

fn spawn(
    index: usize,
    mut client: Box<dyn Client>,
    kinds: &'static [&'static str],
    slice: Option<Duration>,
    gate: &Arc<Gate>,
    reports: &Sender<Report>,
) -> std::io::Result<()> {
    let (gate, reports) = (gate.clone(), reports.clone());
    let body = move || {
        if reports.send(Report::Ready).is_err() {
            return;
        }
        let Some(schedule) = gate.wait() else { return };
        let work = || closed_loop(client.as_mut(), schedule, &gate.over, kinds, slice);
        let report = match std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)) {
            Ok(run) => Report::Done(Box::new(run)),
            Err(panic) => Report::Panicked(words(panic.as_ref())),
        };
        drop(client);
        // The receiver is gone after the run was given up.
        let _ = reports.send(report);
    };
    thread::Builder::new()
        .name(format!("client-{index}"))
        .stack_size(STACK_BYTES)
        .spawn(body)
        .map(drop)
}

fn closed_loop(
    client: &mut dyn Client,
    schedule: Schedule,
    over: &AtomicBool,
    kinds: &'static [&'static str],
    slice: Option<Duration>,
) -> Run {
    let mut run = Run {
        tally: Tally::new(kinds),
        latencies: vec![Latency::default(); kinds.len()],
        ..Run::default()
    };
    let mut slices = slice.map(|length| Slices::new(schedule.begin, length));
    let mut began = Instant::now();
    loop {
        let ended = client.transaction();
        // The end of one transaction is the beginning of the next, so each needs one reading of the
        // clock.
        let now = Instant::now();
        let failed = ended.outcome == Outcome::Error;
        let over = over.load(Relaxed) || now >= schedule.end;
        // An error in the ramp voids the run like any other.
        if failed || (now >= schedule.begin && !over) {
            run.latencies[ended.kind].record(now - began);
            if let Some(slices) = slices.as_mut().filter(|_| ended.outcome.is_commit()) {
                slices.count(now);
            }
            run.tally.count(ended);
        }
        let hopeless = failed && run.tally.of(Outcome::Error) >= ERRORS_UNTIL_A_CLIENT_GIVES_UP;
        if over || hopeless {
            run.slices = slices.map_or(Vec::new(), |slices| slices.counts);
            return run;
        }
        began = now;
    }
}

/// Transactions committed in each slice of the window. There is no division: the end of a slice is
/// compared with the time that was read anyway.
struct Slices {
    length: Duration,
    /// When the last counted transaction ended.
    end: Instant,
    counts: Vec<u64>,
}

impl Slices {
    fn new(begin: Instant, length: Duration) -> Slices {
        let length = length.max(Duration::from_millis(1));
        Slices {
            length,
            end: begin,
            counts: Vec::new(),
        }
    }

    fn count(&mut self, now: Instant) {
        while now >= self.end {
            self.end += self.length;
            self.counts.push(0);
        }
        if let Some(last) = self.counts.last_mut() {
            *last += 1;
        }
    }
}

fn words(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without a message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: &[&str] = &["work"];

    fn plan(ramp: u64, window: u64, grace: u64) -> Plan {
        Plan {
            ramp: Duration::from_millis(ramp),
            window: Duration::from_millis(window),
            slice: Some(Duration::from_millis(50)),
            grace: Duration::from_millis(grace),
        }
    }

    fn go_on(_: Duration) -> ControlFlow<Shortage> {
        ControlFlow::Continue(())
    }

    struct Sleeper(Duration);
    impl Client for Sleeper {
        fn transaction(&mut self) -> Ended {
            thread::sleep(self.0);
            Ended::ok(0)
        }
    }

    fn sleepers(count: usize, each: Duration) -> Vec<Box<dyn Client>> {
        (0..count)
            .map(|_| Box::new(Sleeper(each)) as Box<dyn Client>)
            .collect()
    }

    #[test]
    fn only_what_ends_in_the_window_counts() {
        let clients = sleepers(4, Duration::from_millis(2));
        let run = run(&plan(100, 200, 60_000), KINDS, clients, go_on).unwrap();
        // Four clients, at most 100 transactions each in 200 ms; the ramp would add half as many.
        let committed = run.tally.committed();
        assert!((40..=404).contains(&committed), "{committed}");
        assert_eq!(run.slices.iter().sum::<u64>(), committed);
        assert!(run.slices.len() <= 4 && run.latency().quantile_us(0.5) >= 2_000.0);
    }

    #[test]
    fn a_slice_counts_the_commits_that_end_in_it() {
        let begin = Instant::now();
        let mut slices = Slices::new(begin, Duration::from_millis(10));
        for millis in [0, 9, 10, 35, 39] {
            slices.count(begin + Duration::from_millis(millis));
        }
        assert_eq!(slices.counts, [2, 1, 0, 2]);
        /// One commit, one transaction that was rolled back, and so on.
        struct Halves(bool);
        impl Client for Halves {
            fn transaction(&mut self) -> Ended {
                thread::sleep(Duration::from_millis(1));
                self.0 = !self.0;
                let outcome = if self.0 { Outcome::Ok } else { Outcome::Rule };
                Ended {
                    outcome,
                    ..Ended::ok(0)
                }
            }
        }
        let clients: Vec<Box<dyn Client>> = vec![Box::new(Halves(false))];
        let run = run(&plan(0, 200, 60_000), KINDS, clients, go_on).unwrap();
        assert!(run.tally.of(Outcome::Rule) > 0);
        assert_eq!(run.slices.iter().sum::<u64>(), run.tally.committed());
    }

    /// The window is an hour, so a run that waits for its end fails.
    #[test]
    fn a_run_that_whoever_watches_ends_keeps_what_was_measured_and_says_why() {
        let shortage = |after| Shortage {
            free: 1,
            least: 2,
            after,
        };
        for (ramp, least) in [(0, 1), (3_600_000, 0)] {
            let began = Instant::now();
            let clients = sleepers(2, Duration::from_millis(1));
            let mut ended_at = None;
            let watch = |elapsed: Duration| match elapsed < 4 * TICK {
                true => ControlFlow::Continue(()),
                false => {
                    assert_eq!(ended_at.replace(elapsed), None, "asked again after the end");
                    ControlFlow::Break(shortage(elapsed))
                }
            };
            let run = run(&plan(ramp, 3_600_000, 60_000), KINDS, clients, watch).unwrap();
            assert_eq!(run.cut, ended_at.map(shortage));
            assert!(run.tally.committed() >= least);
            assert!(run.window <= began.elapsed());
            assert_eq!(run.window.is_zero(), least == 0);
        }
    }

    #[test]
    fn whoever_watches_is_called_when_the_window_is_over_even_if_it_slept_through_it() {
        let late = Duration::from_millis(60);
        let mut calls = Vec::new();
        let watch = |elapsed| {
            calls.push(elapsed);
            thread::sleep(late);
            ControlFlow::Continue(())
        };
        let clients = sleepers(1, Duration::from_millis(1));
        run(&plan(20, 10, 60_000), KINDS, clients, watch).unwrap();
        assert!(
            *calls.last().unwrap() >= Duration::from_millis(30),
            "{calls:?}"
        );
    }

    #[test]
    fn a_client_that_never_comes_back_is_reported_and_not_waited_for() {
        let clients = vec![
            Box::new(Sleeper(Duration::from_secs(3_600))) as Box<dyn Client>,
            Box::new(Sleeper(Duration::from_millis(1))),
        ];
        let began = Instant::now();
        let error = run(&plan(0, 50, 100), KINDS, clients, go_on).unwrap_err();
        assert!(
            matches!(
                error,
                DriverError::Stuck {
                    missing: 1,
                    clients: 2,
                    ..
                }
            ),
            "{error}"
        );
        assert!(began.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_panic_in_a_client_is_an_error_with_its_words() {
        struct Panics;
        impl Client for Panics {
            fn transaction(&mut self) -> Ended {
                panic!("row 7 is gone")
            }
        }
        let clients: Vec<Box<dyn Client>> = vec![Box::new(Panics)];
        let error = run(&plan(0, 50, 60_000), KINDS, clients, go_on).unwrap_err();
        assert!(error.to_string().contains("row 7 is gone"), "{error}");
    }

    #[test]
    fn an_error_in_the_ramp_is_counted_and_a_failing_client_gives_up() {
        struct Fails;
        impl Client for Fails {
            fn transaction(&mut self) -> Ended {
                Ended {
                    outcome: Outcome::Error,
                    failure: Some("full".into()),
                    ..Ended::ok(0)
                }
            }
        }
        let clients: Vec<Box<dyn Client>> = vec![Box::new(Fails)];
        let run = run(&plan(50, 50, 60_000), KINDS, clients, go_on).unwrap();
        assert_eq!(run.tally.of(Outcome::Error), ERRORS_UNTIL_A_CLIENT_GIVES_UP);
        assert_eq!(run.tally.failure.as_deref(), Some("full"));
    }
}
