//! A signal handler cancels the transaction of the thread that it interrupts, wherever that is.
//!
//! A program of its own, because a handler belongs to the process. A handler that waited for what
//! its own thread has would never return, so a fault shows as a test that never ends.

use std::os::unix::thread::JoinHandleExt;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::thread;
use std::time::Duration;

use foxton::{CancelSignal, CancelToken, Database, Lock, Options};

const NUMBER: u64 = 7;

/// The signal of the current round.
static CURRENT: AtomicPtr<CancelSignal> = AtomicPtr::new(ptr::null_mut());

extern "C" fn on_signal(_: libc::c_int) {
    let current = CURRENT.load(Ordering::SeqCst);
    // SAFETY: the test frees no signal, so the pointer is null or leads to one.
    if let Some(signal) = unsafe { current.as_ref() } {
        signal.raise();
    }
}

fn install() {
    // SAFETY: zeros are a valid `sigaction`: no flags, and an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as usize;
    // SAFETY: the action is complete, and its handler calls only what is async-signal-safe.
    let installed = unsafe { libc::sigaction(libc::SIGUSR1, &action, ptr::null_mut()) };
    assert_eq!(installed, 0);
}

/// Rounds of one signal storm each. The thread waits for a lock again and again, so the storm finds
/// it at every place of a wait, in the token and in the lock manager.
#[test]
fn a_storm_of_signals_ends_the_waits_of_the_thread_that_it_interrupts() {
    install();
    for round in 0..300u64 {
        let mut options = Options::tiny();
        options.lock_wait = Duration::from_secs(3600);
        let db = Database::in_memory(options).unwrap();
        let mut holder = db.begin().unwrap();
        holder.lock_advisory(NUMBER, Lock::Exclusive).unwrap();
        let token = CancelToken::new();
        let signal = Box::leak(Box::new(token.signal().unwrap()));
        CURRENT.store(signal, Ordering::SeqCst);
        let waiter = {
            let (db, token) = (db.clone(), token.clone());
            // Every second round has only one wait, which nothing else would end.
            let lock = match round % 2 {
                0 => Lock::Shared.into(),
                _ => Lock::Shared.timeout(Duration::from_micros(30)),
            };
            thread::spawn(move || {
                let mut tx = db.begin().unwrap();
                tx.set_cancel_token(&token);
                loop {
                    match tx.lock_advisory(NUMBER, lock) {
                        Err(error) if error.code() == "lock_timeout" => {}
                        refused => return refused.unwrap_err().code(),
                    }
                }
            })
        };
        thread::sleep(Duration::from_micros(round * 7));
        let thread = waiter.as_pthread_t();
        while !waiter.is_finished() {
            // SAFETY: the thread has not been joined, so it has a valid identity.
            let sent = unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
            assert!(sent == 0 || sent == libc::ESRCH);
        }
        assert_eq!(waiter.join().unwrap(), "cancelled");
        assert!(token.is_cancelled());
        holder.commit().unwrap();
        assert!(db.locks().is_empty());
    }
}

#[test]
fn a_signal_that_is_dropped_cancels_nothing() {
    let token = CancelToken::new();
    drop(token.signal().unwrap());
    assert!(!token.is_cancelled());
    let signal = token.signal().unwrap();
    signal.raise();
    signal.raise();
    assert!(token.is_cancelled());
}
