//! Number of entries that the steps of a queue visit.

use super::*;

use crate::request::MAX_BLOCKERS;

const NAME: Name = Name::table(1);

fn ticket(owner_index: u32) -> Ticket {
    Ticket::from_sequence(u64::from(owner_index) + 1)
}

fn steps(head: &LockHead) -> u64 {
    head.waiters().map_or(0, |waiters| waiters.steps.get())
}

/// Returns the entries that are visited when one more joins a queue of this length, when one in
/// its middle gives up, when one is refused, and when the lock is handed on.
fn visits(length: u32, modes: &[Mode]) -> [u64; 4] {
    let mut head = LockHead::new(NAME);
    let holder = head.acquire(0, Mode::X).expect("no holder");
    for owner_index in 1..=length {
        let mode = modes[owner_index as usize % modes.len()];
        head.enqueue(owner_index, ticket(owner_index), mode, None);
    }
    let mut last = steps(&head);
    let mut since = |head: &LockHead| steps(head) - std::mem::replace(&mut last, steps(head));
    let late = length + 1;
    let joined = head.enqueue(late, ticket(late), modes[0], None);
    let edges = head.wait_edges(joined.wait(), late).expect("it waits");
    assert!(edges.steps.len() < modes.len() && edges.holders.len() == 1);
    let join = since(&head);
    let (owner_index, middle) = (length / 2, ticket(length / 2));
    let middle = WaitTicket {
        owner_index,
        ticket: middle,
    };
    let (order, waiter) = head.find(middle).expect("it waits");
    let found = head.conflicting(owner_index, waiter.mode, order);
    assert!(found.listed.len() <= MAX_BLOCKERS);
    head.withdraw(middle);
    head.grant_waiters(|_, _| panic!("it is held"));
    let leave = since(&head);
    let found = head.conflicting(late + 1, Mode::X, head.order_of_next(false));
    assert_eq!(found.listed.len() + found.more, length as usize + 1);
    let refuse = since(&head);
    head.release(holder);
    let mut granted = 0;
    head.grant_waiters(|_, _| granted += 1);
    assert!(granted > 0);
    [join, leave, refuse, since(&head)]
}

#[test]
fn a_step_visits_as_many_entries_in_a_long_queue_as_in_a_short_one() {
    let mixed = [Mode::S, Mode::X, Mode::IX, Mode::U, Mode::IS];
    for modes in [&[Mode::X][..], &mixed] {
        // Not below 100, where there are fewer blockers than a refusal lists.
        let [short, long, longest] = [100, 1_000, 10_000].map(|length| visits(length, modes));
        println!("{modes:?}: {short:?} {long:?} {longest:?}");
        assert_eq!((short, long), (longest, longest));
        assert!(longest.iter().all(|&visits| visits <= 250), "{longest:?}");
    }
}
