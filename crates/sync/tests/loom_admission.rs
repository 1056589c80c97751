//! Seats are lost by nobody and had by no two; nobody waits for ever.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release --target-dir target/loom -p foxton-sync --test loom_admission`
#![cfg(loom)]

use std::time::Duration;

use foxton_sync::admission::{Admission, Claim};
use foxton_sync::shim::{Arc, AtomicU32, Ordering, thread};

/// One client; `seated` is how many have a seat.
fn run(rounds: usize, admission: &Admission, seated: &AtomicU32) {
    let mut claim = Claim::default();
    for _ in 0..rounds {
        admission.enter(&mut claim);
        if claim.is_seated() {
            assert_eq!(seated.fetch_add(1, Ordering::AcqRel), 0, "I1");
            seated.fetch_sub(1, Ordering::AcqRel);
        }
        admission.leave(&mut claim);
    }
}

/// `clients` that each pass `rounds` times through one seat.
fn pass(clients: usize, rounds: usize, tenure: Duration, bound: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(bound);
    model.check(move || {
        let admission = Arc::new(Admission::with_tenure(1, tenure));
        let seated = Arc::new(AtomicU32::new(0));
        let others: Vec<_> = (1..clients)
            .map(|_| {
                let (admission, seated) = (admission.clone(), seated.clone());
                thread::spawn(move || run(rounds, &admission, &seated))
            })
            .collect();
        run(rounds, &admission, &seated);
        for other in others {
            other.join().unwrap();
        }
        assert_eq!((admission.free(), admission.waiting()), (1, 0), "I1, I3");
    });
}

#[test]
fn a_seat_is_handed_on_to_one_at_a_time() {
    pass(2, 2, Duration::ZERO, 3);
}

#[test]
fn a_seat_is_left_for_one_who_comes_back_and_found_by_one_who_watches() {
    pass(2, 2, Duration::MAX, 3);
}

#[test]
fn the_head_of_a_line_of_two_is_followed_by_the_next() {
    pass(3, 1, Duration::ZERO, 2);
    pass(3, 1, Duration::MAX, 2);
}

/// Both seats are taken when the crowd ends; who is in line, or comes to it, goes in.
#[test]
fn whoever_is_in_line_when_the_crowd_is_over_is_let_in() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let admission = Arc::new(Admission::with_tenure(2, Duration::MAX).only_in_crowds(1));
        admission.set_crowd(true);
        let mut seated = [Claim::default(), Claim::default()];
        for claim in &mut seated {
            admission.enter(claim);
            assert!(claim.is_seated());
        }
        let another = {
            let admission = admission.clone();
            thread::spawn(move || {
                let mut claim = Claim::default();
                admission.enter(&mut claim);
                admission.leave(&mut claim);
            })
        };
        admission.set_crowd(false);
        admission.leave(&mut seated[0]);
        another.join().unwrap();
        admission.leave(&mut seated[1]);
        assert_eq!((admission.free(), admission.waiting()), (2, 0), "I1, I4");
    });
}
