//! What seats and the line promise.

use super::*;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self as threads, JoinHandle};

/// Those in line, first come first: whom to tell that it may leave, and its thread.
type Line = Vec<(Sender<()>, JoinHandle<()>)>;

/// One seat; the head of the line never looks by itself, so that everything here follows from what is
/// called.
fn one_seat(tenure: Duration) -> Arc<Admission> {
    let mut admission = Admission::with_tenure(1, tenure);
    admission.watch = Duration::MAX;
    admission.line = Mutex::new(super::Line::strict());
    Arc::new(admission)
}

/// One who stands in line, tells its number when it has a seat, and keeps that until it is told to leave;
/// then its tenure is over.
fn waiter(
    admission: &Arc<Admission>,
    (number, seated): (u32, &Sender<u32>),
) -> (Sender<()>, JoinHandle<()>) {
    let (go, gone) = mpsc::channel();
    let (behind, seated, there) = (admission.clone(), seated.clone(), admission.waiting());
    let thread = threads::spawn(move || {
        let mut claim = Claim::default();
        behind.enter(&mut claim);
        assert!(claim.is_seated());
        seated.send(number).unwrap();
        gone.recv().unwrap();
        claim.since = None;
        behind.leave(&mut claim);
    });
    while admission.waiting() == there {
        threads::yield_now();
    }
    (go, thread)
}

fn two_in_line(admission: &Arc<Admission>) -> (Line, Receiver<u32>) {
    let (tell, told) = mpsc::channel();
    let line = [1, 2].map(|number| waiter(admission, (number, &tell)));
    (line.into(), told)
}

/// Who is seated next. Minutes without one are a seat that was lost.
fn next(told: &Receiver<u32>) -> u32 {
    told.recv_timeout(Duration::from_mins(2)).unwrap()
}

fn all_leave(admission: &Admission, line: Line, told: &Receiver<u32>) {
    for (number, (go, thread)) in (1..).zip(line) {
        assert_eq!(next(told), number, "first come, first seated");
        assert_eq!(admission.free(), 0);
        go.send(()).unwrap();
        thread.join().unwrap();
    }
    assert_eq!((admission.free(), admission.waiting()), (1, 0));
}

#[test]
fn who_comes_back_has_the_seat_that_it_left() {
    let admission = Admission::new(3);
    let mut claims: Vec<Claim> = (0..3).map(|_| Claim::default()).collect();
    claims.iter_mut().for_each(|claim| {
        admission.enter(claim);
    });
    let lanes = |claims: &[Claim]| claims.iter().map(|claim| claim.lane).collect::<Vec<_>>();
    assert_eq!(lanes(&claims), [0, 1, 2]);
    claims.iter_mut().for_each(|claim| {
        admission.leave(claim);
    });
    claims.iter_mut().rev().for_each(|claim| {
        admission.enter(claim);
    });
    assert_eq!(lanes(&claims), [0, 1, 2]);
    claims.iter_mut().for_each(|claim| {
        admission.leave(claim);
    });
}

#[test]
fn while_its_tenure_lasts_a_claim_comes_back_past_the_line() {
    let (admission, mut claim) = (one_seat(Duration::MAX), Claim::default());
    admission.enter(&mut claim);
    let (line, told) = two_in_line(&admission);
    assert!(admission.leave(&mut claim));
    assert_eq!((admission.free(), admission.waiting()), (1, 2));
    assert_eq!(admission.enter(&mut claim), 1);
    assert!(claim.is_seated() && told.try_recv().is_err());
    assert_eq!((admission.free(), admission.waiting()), (0, 2));
    claim.since = None;
    admission.leave(&mut claim);
    all_leave(&admission, line, &told);
}

#[test]
fn after_its_tenure_it_hands_the_seat_to_the_first() {
    let (admission, mut claim) = (one_seat(Duration::ZERO), Claim::default());
    admission.enter(&mut claim);
    let (line, told) = two_in_line(&admission);
    assert!(admission.leave(&mut claim));
    assert!(!claim.is_seated() && !admission.leave(&mut claim));
    assert_eq!((admission.free(), admission.waiting()), (0, 1));
    all_leave(&admission, line, &told);
}

#[test]
fn a_tenure_is_longer_where_few_are_blocked() {
    let tenure = Duration::from_secs(10);
    let admission = Admission::with_tenure(1, tenure).only_in_crowds(1);
    let crowd = admission.crowd.as_ref().unwrap();
    let begun = |before: Duration| Claim {
        since: Some(Instant::now() - before),
        ..Claim::default()
    };
    crowd.set(true);
    assert!(admission.has_tenure(&mut begun(tenure / 2)));
    assert!(!admission.has_tenure(&mut begun(tenure * 2)));
    crowd.set_long();
    assert!(admission.has_tenure(&mut begun(tenure * 2)));
    assert!(!admission.has_tenure(&mut begun(tenure * (LONG + 1))));
}

#[test]
fn the_clock_is_looked_at_now_and_then_and_a_new_tenure_begins_with_a_look() {
    let tenure = Duration::from_secs(10);
    let admission = Admission::with_tenure(1, tenure);
    let mut claim = Claim::default();
    admission.enter(&mut claim);
    let unseen = |claim: &mut Claim| {
        claim.since = Some(Instant::now() - tenure * 2);
        (0..).find(|_| !admission.has_tenure(claim)).unwrap()
    };
    assert_eq!(unseen(&mut claim), 0);
    claim.begin_tenure();
    assert!(admission.has_tenure(&mut claim));
    assert_eq!(unseen(&mut claim), 0);
    claim.begin_tenure();
    assert!((0..10_000).all(|_| admission.has_tenure(&mut claim)));
    assert!((1..MOST_UNSEEN).contains(&unseen(&mut claim)));
    claim.begin_tenure();
    assert_eq!(unseen(&mut claim), 0);
}

#[test]
fn who_is_handed_a_seat_has_it_and_no_other() {
    let mut admission = Admission::with_tenure(2, Duration::ZERO);
    admission.watch = Duration::MAX;
    let mut claims = [Claim::default(), Claim::default()];
    claims.iter_mut().for_each(|claim| {
        admission.enter(claim);
    });
    threads::scope(|scope| {
        let next = scope.spawn(|| {
            let mut claim = Claim::default();
            admission.enter(&mut claim);
            claim
        });
        while admission.waiting() == 0 {
            threads::yield_now();
        }
        let [first, second] = &mut claims;
        admission.leave(second);
        let mut next = next.join().unwrap();
        assert_eq!((first.lane, second.lane, next.lane), (0, 1, 1));
        admission.leave(first);
        admission.leave(&mut next);
    });
    let both = [0, 1].map(|lane| admission.seats.take_of(lane));
    assert_eq!((both, admission.free()), ([true; 2], 0));
}

#[test]
fn who_comes_back_too_late_stands_behind_and_the_first_has_the_seat() {
    let (admission, mut claim) = (one_seat(Duration::MAX), Claim::default());
    admission.enter(&mut claim);
    let (line, told) = two_in_line(&admission);
    admission.leave(&mut claim);
    // Long ago.
    claim.since = None;
    let behind = admission.clone();
    let late = threads::spawn(move || {
        behind.enter(&mut claim);
        claim
    });
    assert_eq!(next(&told), 1);
    while admission.waiting() < 2 {
        threads::yield_now();
    }
    let mut line = line.into_iter();
    let (go, thread) = line.next().unwrap();
    go.send(()).unwrap();
    thread.join().unwrap();
    assert_eq!(next(&told), 2);
    let (go, thread) = line.next().unwrap();
    go.send(()).unwrap();
    thread.join().unwrap();
    let mut claim = late.join().unwrap();
    assert!(claim.is_seated());
    admission.leave(&mut claim);
    assert_eq!((admission.free(), admission.waiting()), (1, 0));
}

#[test]
fn who_watches_gives_on_a_seat_that_is_free_though_its_client_came_back_a_moment_ago() {
    let (admission, mut claim) = (one_seat(Duration::MAX), Claim::default());
    admission.enter(&mut claim);
    let (line, told) = two_in_line(&admission);
    for _ in 0..3 {
        admission.leave(&mut claim);
        admission.enter(&mut claim);
    }
    assert!(claim.is_seated() && told.try_recv().is_err());
    admission.leave(&mut claim);
    admission.watch(false);
    all_leave(&admission, line, &told);
}

#[test]
fn seats_count_only_while_there_is_a_crowd_and_then_all_are_let_in() {
    let mut admission = one_seat(Duration::MAX);
    let only = Arc::get_mut(&mut admission).unwrap();
    only.crowd = Some(Crowd::new(1));
    let crowd = |is_on| admission.crowd.as_ref().unwrap().set(is_on);
    let mut claim = Claim::default();
    assert_eq!(admission.enter(&mut claim), 0);
    assert!(!claim.is_seated() && !admission.leave(&mut claim));
    crowd(true);
    assert_eq!(admission.enter(&mut claim), 1);
    assert!(claim.is_seated());
    let line: Vec<_> = (0..3)
        .map(|before| {
            let admission = admission.clone();
            let behind = admission.clone();
            let thread = threads::spawn(move || {
                let mut claim = Claim::default();
                behind.enter(&mut claim);
                claim.is_seated()
            });
            while admission.waiting() == before {
                threads::yield_now();
            }
            thread
        })
        .collect();
    crowd(false);
    admission.let_in();
    for one in line {
        assert!(!one.join().unwrap(), "nobody has left a seat");
    }
    assert!(admission.leave(&mut claim));
    assert_eq!((admission.free(), admission.waiting()), (1, 0));
}

#[test]
fn who_comes_to_the_line_when_the_crowd_is_over_finds_it_out() {
    let mut admission = Admission::new(0).only_in_crowds(1);
    admission.watch = Duration::from_millis(1);
    let mut claim = Claim::default();
    // It has seen the crowd, and then there is none.
    assert_eq!(admission.stand_in_line(&mut claim), 2, "the first look");
    assert!(!claim.is_seated() && admission.waiting() == 0);
}

#[test]
fn who_waits_for_one_that_waits_for_it_goes_in_without_a_seat() {
    let (admission, mut claim) = (Arc::new(Admission::new(1)), Claim::default());
    admission.enter(&mut claim);
    // Nobody leaves until they are all in.
    let line: Vec<_> = (0..3)
        .map(|_| {
            let admission = admission.clone();
            threads::spawn(move || {
                let mut claim = Claim::default();
                admission.enter(&mut claim);
                claim.is_seated()
            })
        })
        .collect();
    for one in line {
        assert!(!one.join().unwrap());
    }
    admission.leave(&mut claim);
    assert_eq!((admission.free(), admission.waiting()), (1, 0));
}
