//! Every manager over every latch that elides, on emulated transactions: the same requests as ever,
//! and some passes are elided. `contract`, `scripts` and `stress`, with the same feature, check the
//! answers; this test checks that passes were elided.
//!
//! ```text
//! cargo test -p foxton-lock --features emulated --test it -- elided:: contract:: scripts::
//! cargo test -p foxton-lock --features emulated --test stress
//! ```

use foxton_lock::{
    any::{AnyManager, Inheritance, ManagerKind, Options},
    manager::LockManager,
    mode::Mode,
    name::Name,
    request::{Reply, WaitMode},
};
use foxton_sync::{
    htm::{Cause, Elisions},
    latch,
    worker::Workers,
};
use std::task::{Context, Poll, Waker};

const TRIES: [latch::Kind; 3] = [
    latch::Kind::ElidedRtm,
    latch::Kind::ElidedRetry100,
    latch::Kind::ElidedCooldown,
];

/// Two owners, one of which waits for the other, over and over, so that every latch of the manager
/// is passed.
fn played(kind: ManagerKind, latch: latch::Kind, inherit: Inheritance) -> Elisions {
    const ROUNDS: usize = 200;
    let mut options = Options::tiny();
    (options.kind, options.latch, options.inherit) = (kind, latch, inherit);
    let workers = Workers::with_seed(1);
    let worker = workers.worker();
    let locks = AnyManager::new(&options);
    let (mut one, mut other) = (locks.owner(), locks.owner());
    for round in 0..ROUNDS {
        let name = Name::table(round as u32 % 7);
        let reply = locks.request(&worker, &mut one, name, Mode::X, WaitMode::Wait);
        assert!(matches!(reply, Reply::Granted), "{kind} over {latch}");
        let reply = locks.request(&worker, &mut other, name, Mode::S, WaitMode::Wait);
        assert!(matches!(reply, Reply::Waiting), "{kind} over {latch}");
        locks.release_all(&worker, &mut one);
        let mut context = Context::from_waker(Waker::noop());
        let polled = locks.poll_wait(&worker, &mut other, &mut context);
        assert!(matches!(polled, Poll::Ready(outcome) if outcome.is_held()));
        locks.release_all(&worker, &mut other);
        locks.verify(&worker);
    }
    workers.elisions()
}

#[test]
fn every_manager_elides_some_passes_and_not_all() {
    for kind in ManagerKind::ALL {
        for inherit in [Inheritance::Off, Inheritance::Always] {
            for latch in TRIES {
                let done = played(kind, latch, inherit);
                if kind == ManagerKind::Reference {
                    assert_eq!(done, Elisions::default(), "it has a mutex of its own");
                    continue;
                }
                let told = format!("{kind} over {latch}, inheritance {inherit}: {done:?}");
                assert!(done.committed > 0 && done.latched > 0, "{told}");
                for cause in [Cause::Conflict, Cause::Capacity, Cause::Other] {
                    assert!(done.aborted(cause) > 0, "{told}");
                }
            }
        }
    }
}

/// No thread has waited for a latch here, so the plain latch underneath is used, which counts
/// nothing.
#[test]
fn the_adaptive_latch_is_taken_without_contention() {
    for kind in ManagerKind::ALL {
        let done = played(kind, latch::Kind::ElidedAdaptive, Inheritance::Off);
        assert_eq!(done, Elisions::default(), "{kind}");
    }
}
