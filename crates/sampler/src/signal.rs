//! The timer of the process's own processor time, its signal, and the handler.
//!
//! # What the handler may do
//!
//! The signal interrupts a thread anywhere: in the allocator, with a latch held, in the middle of
//! an unwind. So the handler allocates nothing, acquires nothing, and waits for no thread. It walks
//! the stack and writes addresses into memory that was allocated before. To walk a stack it reads
//! the tables of the program. Since 2.35 glibc finds them without a lock. Before that it used a
//! lock that the same thread may acquire again, and that is not held by a thread that waits for a
//! sample.
//!
//! # Invariants
//!
//! * I1  A slot is written by the one handler that drew its number, and read when no handler is
//!   running.
//! * I2  The handler stays installed: a signal that is still pending when the timer stops would
//!   otherwise end the process.
//!
//! # Orderings
//!
//! * O1  A handler leaves `AT_WORK` (Release), and `stop` reads it as 0 (Acquire): `stop` then sees
//!   every sample.
//! * O2  `ON` is cleared before `AT_WORK` is read, and `AT_WORK` is raised before `ON` is read (all
//!   SeqCst): either the handler sees that sampling is over, or `stop` sees the handler. Each
//!   writes one word and reads the other, and nothing weaker keeps that in order.

use std::{
    ptr::{null, null_mut},
    sync::OnceLock,
    thread,
};

use foxton_sync::shim::{AtomicBool, AtomicUsize, Ordering};

use crate::{Samples, Unavailable};

/// Number of samples with space: some minutes on two processors.
const SLOTS: usize = 1 << 15;
/// Number of functions kept of each stack, from the inside: enough to include any part of ours.
const DEPTH: usize = 40;

/// A sample.
struct Slot {
    depth: AtomicUsize,
    stack: [AtomicUsize; DEPTH],
}

static ROOM: OnceLock<Box<[Slot]>> = OnceLock::new();
static DRAWN: AtomicUsize = AtomicUsize::new(0);
static AT_WORK: AtomicUsize = AtomicUsize::new(0);
static ON: AtomicBool = AtomicBool::new(false);
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The right to sample, which one sampling at a time has. Dropping it stops the timer.
#[derive(Debug)]
pub(crate) struct Taken;

impl Drop for Taken {
    fn drop(&mut self) {
        quiet();
        TAKEN.store(false, Ordering::Release); // O1
    }
}

pub(crate) fn start(per_second: u32) -> Result<Taken, Unavailable> {
    // The samples of an earlier sampling are not touched before that is over.
    let taken = TAKEN.swap(true, Ordering::Acquire); // O1
    if taken {
        return Err(Unavailable::Taken);
    }
    let taken = Taken;
    let slot = |_| Slot {
        depth: AtomicUsize::new(0),
        stack: [const { AtomicUsize::new(0) }; DEPTH],
    };
    let room = ROOM.get_or_init(|| (0..SLOTS).map(slot).collect());
    // Relaxed: no handler is running (I1).
    for slot in room {
        slot.depth.store(0, Ordering::Relaxed);
    }
    DRAWN.store(0, Ordering::Relaxed);
    // The first walk prepares tables, which must not happen in a handler.
    backtrace::trace(|_| true);
    listen()?;
    ON.store(true, Ordering::SeqCst); // O2
    timer(1_000_000 / per_second)?;
    Ok(taken)
}

pub(crate) fn taken() -> usize {
    DRAWN.load(Ordering::Relaxed).min(SLOTS)
}

pub(crate) fn stop(_taken: &Taken) -> Samples {
    quiet();
    let drawn = DRAWN.load(Ordering::Relaxed);
    let slots = ROOM.get().into_iter().flatten().take(drawn);
    // Relaxed: no handler is running any more, and all their writes are visible (O1).
    let stack = |slot: &Slot| -> Vec<usize> {
        let depth = slot.depth.load(Ordering::Relaxed);
        let addresses = slot.stack.iter().take(depth);
        addresses
            .map(|address| address.load(Ordering::Relaxed))
            .collect()
    };
    Samples {
        stacks: slots.map(stack).collect(),
        lost: drawn.saturating_sub(SLOTS),
    }
}

/// Stops the timer and waits until no handler is running.
fn quiet() {
    // A timer that cannot be stopped never ran.
    let _ = timer(0);
    ON.store(false, Ordering::SeqCst); // O2
    // A handler takes microseconds once its thread is running.
    let at_work = || AT_WORK.load(Ordering::SeqCst) > 0; // O1, O2
    while at_work() {
        thread::yield_now();
    }
}

/// Installs the handler, for good (I2).
fn listen() -> Result<(), Unavailable> {
    let ours = on_signal as extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
    // SAFETY: all zeros is a `sigaction` that asks for nothing.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: nothing is set, and the present action is written to a variable of its type.
    if unsafe { libc::sigaction(libc::SIGPROF, null(), &mut before) } != 0 {
        return Err(refused());
    }
    let known = [libc::SIG_DFL, libc::SIG_IGN, ours as usize];
    if !known.contains(&before.sa_sigaction) {
        return Err(Unavailable::Signal);
    }
    // SAFETY: as above; an empty mask is all zeros.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = ours as usize;
    // System calls that wait are restarted.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    // SAFETY: `on_signal` has the type that SA_SIGINFO calls, exists as long as the program, and
    // does only what may be done in a signal: see the first page.
    match unsafe { libc::sigaction(libc::SIGPROF, &action, null_mut()) } {
        0 => Ok(()),
        _ => Err(refused()),
    }
}

/// Sets the timer to this many microseconds of the process's processor time, repeatedly; 0 stops
/// it.
fn timer(micros: u32) -> Result<(), Unavailable> {
    let every = libc::timeval {
        tv_sec: libc::time_t::from(micros / 1_000_000 == 1),
        tv_usec: libc::suseconds_t::from(micros % 1_000_000),
    };
    let value = libc::itimerval {
        it_interval: every,
        it_value: every,
    };
    // SAFETY: `value` is whole, and the previous value is not asked for.
    match unsafe { libc::setitimer(libc::ITIMER_PROF, &value, null_mut()) } {
        0 => Ok(()),
        _ => Err(refused()),
    }
}

fn refused() -> Unavailable {
    let number = std::io::Error::last_os_error().raw_os_error();
    Unavailable::Refused(number.unwrap_or(0))
}

/// Records where this thread was.
extern "C" fn on_signal(
    _signal: libc::c_int,
    _about: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the location of this thread's `errno` exists as long as the thread.
    let errno = unsafe { *libc::__errno_location() };
    AT_WORK.fetch_add(1, Ordering::SeqCst); // O2
    if ON.load(Ordering::SeqCst) {
        // O2
        // SAFETY: SA_SIGINFO passes the context of the interrupted thread.
        note(unsafe { interrupted(context) });
    }
    AT_WORK.fetch_sub(1, Ordering::SeqCst); // O1
    // SAFETY: as above. The interrupted thread finds its `errno` unchanged.
    unsafe { *libc::__errno_location() = errno };
}

/// Draws a slot and writes the stack into it, from the interrupted instruction outwards.
fn note(at: usize) {
    let number = DRAWN.fetch_add(1, Ordering::Relaxed);
    let Some(slot) = ROOM.get().and_then(|room| room.get(number)) else {
        return;
    };
    let (mut depth, mut arrived) = (0, false);
    let frame = |frame: &backtrace::Frame| {
        let ip = frame.ip() as usize;
        // The innermost functions are the handler's own. An address behind a call is one less here.
        arrived |= ip == at || ip.wrapping_add(1) == at;
        if arrived && let Some(place) = slot.stack.get(depth) {
            place.store(ip, Ordering::Relaxed);
            depth += 1;
        }
        depth < DEPTH
    };
    // SAFETY: on Linux nothing has to be synchronised: each thread walks its own stack, and the
    // tables do not change.
    unsafe { backtrace::trace_unsynchronized(frame) };
    if depth == 0 {
        slot.stack[0].store(at, Ordering::Relaxed);
        depth = 1;
    }
    slot.depth.store(depth, Ordering::Relaxed); // Published by O1.
}

/// Returns the instruction that the interrupted thread would have executed next.
///
/// # Safety
///
/// `context` is what the system passes to a handler with SA_SIGINFO.
unsafe fn interrupted(context: *mut libc::c_void) -> usize {
    let context = context.cast::<libc::ucontext_t>();
    // SAFETY: by the contract it points to a whole context, which no other thread touches.
    let machine = unsafe { &(*context).uc_mcontext };
    #[cfg(target_arch = "x86_64")]
    return machine.gregs[libc::REG_RIP as usize] as usize;
    #[cfg(target_arch = "aarch64")]
    return machine.pc as usize;
}
