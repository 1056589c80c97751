//! The clauses of the latch contract, on every kind. C1, C2 and C4 at full size are in
//! `oversubscribed.rs`, and as models in `models/latch.rs`.

use foxton_sync::latch::{Kind, Latched, ShardedLatched, SharedLatched, VersionLatch};
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::Workers;
use std::panic::{AssertUnwindSafe, catch_unwind};

static SITE: Site = Site::new(Component::Latch, Pattern::Unbounded, "contract");

#[test]
fn c1_a_try_fails_while_another_holds_the_latch() {
    let workers = Workers::new();
    let (outer, inner) = (workers.worker(), workers.worker());
    for kind in Kind::ALL {
        let latched = Latched::new(kind, &SITE, 0);
        latched.with(&outer, |value| {
            *value += 1;
            assert_eq!(latched.try_with(&inner, |value| *value), None, "{kind}");
        });
        assert_eq!(latched.try_with(&inner, |value| *value), Some(1), "{kind}");
    }
}

#[test]
fn c5_a_holder_that_panics_releases() {
    let worker = Workers::new().worker();
    for kind in Kind::ALL {
        let latched = Latched::new(kind, &SITE, 0);
        let body = AssertUnwindSafe(|| latched.with(&worker, |_| panic!("on purpose")));
        assert!(catch_unwind(body).is_err());
        assert_eq!(latched.with(&worker, |value| *value), 0, "{kind}");
    }
}

#[test]
fn an_owned_value_needs_no_latch() {
    for kind in Kind::ALL {
        let mut latched = Latched::new(kind, &SITE, vec![1]);
        latched.get_mut().push(2);
        assert_eq!(latched.kind(), kind);
        assert_eq!(latched.into_inner(), [1, 2]);
    }
}

#[test]
fn a_kind_is_read_as_it_is_written() {
    for kind in Kind::ALL {
        assert_eq!(kind.to_string().parse(), Ok(kind));
    }
    let error = "mutex".parse::<Kind>().expect_err("there is none");
    assert_eq!(
        error.to_string(),
        "there is no latch called \"mutex\"; there are tas, tas-t, queue, parking, elided:hle, \
         elided:rtm, elided:retry100, elided:cooldown, elided:adaptive"
    );
}

/// A table of a hundred thousand latches is usual. The emulation of transactions takes space of its
/// own.
#[cfg(not(feature = "emulated"))]
#[test]
fn a_latch_is_two_words() {
    let site = if cfg!(feature = "account") {
        size_of::<&Site>()
    } else {
        0
    };
    assert_eq!(size_of::<Latched<u64>>(), 16 + site + 8);
}

#[test]
fn readers_share_and_writers_do_not() {
    let workers = Workers::new();
    let (outer, inner) = (workers.worker(), workers.worker());
    let value = SharedLatched::new(&SITE, 1);
    value.read(&outer, |_| {
        assert_eq!(value.try_read(&inner, |value| *value), Some(1));
        assert_eq!(value.try_write(&inner, |value| *value), None);
    });
    value.write(&outer, |_| {
        assert_eq!(value.try_read(&inner, |value| *value), None);
        assert_eq!(value.try_write(&inner, |value| *value), None);
    });
    let body = AssertUnwindSafe(|| value.write(&outer, |_| panic!("on purpose")));
    assert!(catch_unwind(body).is_err());
    assert_eq!(value.try_write(&inner, |value| *value), Some(1));
}

#[test]
fn readers_of_a_sharded_latch_share_and_a_writer_is_alone() {
    let workers = Workers::new();
    let (outer, inner) = (workers.worker(), workers.worker());
    let mut value = ShardedLatched::new(&SITE, 1);
    // As many as there are shards, so that some pick the same.
    for _ in 0..64 {
        let sum = value.read(&outer, |one| value.read(&inner, |other| one + other));
        assert_eq!(sum, 2);
    }
    let body = AssertUnwindSafe(|| value.write(&outer, |_| panic!("on purpose")));
    assert!(catch_unwind(body).is_err());
    value.write(&inner, |value| *value += 1);
    *value.get_mut() += 1;
    assert_eq!(value.into_inner(), 3);
}

#[test]
fn a_reader_waits_behind_a_waiting_writer() {
    let workers = Workers::new();
    let (reader, late_reader, writer) = (workers.worker(), workers.worker(), workers.worker());
    let value = SharedLatched::new(&SITE, 0);
    std::thread::scope(|scope| {
        value.read(&reader, |_| {
            let value = &value;
            scope.spawn(move || value.write(&writer, |value| *value = 1));
            // The writer announces itself at its first try.
            while value.try_read(&late_reader, |_| ()).is_some() {
                std::thread::yield_now();
            }
        });
    });
    assert_eq!(value.read(&reader, |value| *value), 1);
}

#[test]
fn a_version_unlocked_unchanged_disturbs_no_reader() {
    let latch = VersionLatch::default();
    let seen = latch.version().expect("nobody holds it");
    assert_eq!(latch.lock(), seen);
    assert!(!latch.unchanged_since(seen));
    latch.unlock_unchanged(seen);
    assert!(latch.unchanged_since(seen));
    assert_eq!(latch.lock(), seen);
    latch.unlock();
    assert!(!latch.unchanged_since(seen));
    assert!(!latch.try_lock(seen));
}

#[test]
#[should_panic(expected = "nobody holds")]
fn unlocking_a_free_version_latch_panics() {
    VersionLatch::default().unlock();
}
