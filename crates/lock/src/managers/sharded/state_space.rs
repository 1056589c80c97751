//! Every history of four owners at one name, with weights.
//!
//! The test visits each state of a head once, and takes every step from it: requests with weight
//! and without, releases, refusals, new weights. In other systems contention-aware orders have
//! granted two writers at once, so nothing here is left to chance:
//!
//! * two owners never hold the name in conflicting modes, and no waiter could be granted
//!   (`LockHead::verify`, L1 and L4);
//! * no new request and no later conversion passes a conversion (L5);
//! * a waiter is put behind later requests only up to its maximum, and then goes before all of
//!   them;
//! * a refused or released request leaves the head as it would have been without it.

use crate::{
    managers::latched::head::{HeadWaiter, LockHead, MAX_OVERTAKEN},
    mode::Mode,
    name::Name,
    owner::owner_table::WaitTicket,
};
use foxton_sync::park::Ticket;
use std::collections::HashSet;

const OWNERS: usize = 4;

/// State of one owner.
#[derive(Debug, Clone, Copy)]
enum OwnerState {
    /// Neither holds nor waits.
    Away,
    /// Waits in the queue; a conversion holds the first mode, in a slot.
    Waits {
        held: Option<(Mode, u32)>,
        wanted: Mode,
        overtaken: u8,
    },
    /// Holds the name.
    Holds { mode: Mode, slot: u32 },
}

/// A head, the states of its owners, and its queue in order.
#[derive(Clone)]
struct HeadState {
    head: LockHead,
    owners: [OwnerState; OWNERS],
}

/// A waiter: mode held, mode wanted, number of overtakings, weight.
type WaiterKey = (Option<Mode>, Mode, u8, u32);

/// Key that makes two states equal whichever owners take part: the queue, and the modes of the
/// others.
type StateKey = (Vec<WaiterKey>, Vec<Mode>);

const NAME: Name = Name::table(1);

fn ticket(owner_index: u32) -> Ticket {
    Ticket::from_sequence(u64::from(owner_index) + 1)
}

impl HeadState {
    fn new() -> Self {
        Self {
            head: LockHead::new(NAME),
            owners: [OwnerState::Away; OWNERS],
        }
    }

    fn key(&self) -> StateKey {
        let waits = |waiter: HeadWaiter| match self.owners[waiter.owner_index as usize] {
            OwnerState::Waits { held, wanted, .. } => (
                held.map(|held| held.0),
                wanted,
                waiter.overtaken,
                waiter.weight,
            ),
            other => panic!("an owner that does not wait is in the queue: {other:?}"),
        };
        let holds = |state: &OwnerState| match state {
            OwnerState::Holds { mode, .. } => Some(*mode),
            _ => None,
        };
        let mut holders: Vec<Mode> = self.owners.iter().filter_map(holds).collect();
        holders.sort();
        (self.head.queue().map(waits).collect(), holders)
    }

    /// Takes over the grants of the head.
    fn grant(&mut self) {
        let owners = &mut self.owners;
        self.head.grant_waiters(|waiter: HeadWaiter, slot| {
            let state = &mut owners[waiter.owner_index as usize];
            assert!(
                matches!(state, OwnerState::Waits { wanted, .. } if *wanted == waiter.mode),
                "only who waits is granted, and what it waits for: {state:?}"
            );
            *state = OwnerState::Holds {
                mode: waiter.mode,
                slot,
            };
        });
    }

    fn wait(&mut self, owner_index: u32, held: Option<(Mode, u32)>, wanted: Mode, weight: u32) {
        let slot = held.map(|held| held.1);
        let waiter = self
            .head
            .enqueue(owner_index, ticket(owner_index), wanted, slot);
        self.owners[owner_index as usize] = OwnerState::Waits {
            held,
            wanted,
            overtaken: 0,
        };
        if held.is_none() {
            let before = self.queue();
            let moved = self.head.move_forward(waiter.wait(), weight);
            self.count_overtaken(&before);
            if moved {
                self.grant();
            }
        }
    }

    fn queue(&self) -> Vec<u32> {
        self.head.queue().map(|waiter| waiter.owner_index).collect()
    }

    /// Checks that each overtaking since the queue was `before` was counted, and records it.
    fn count_overtaken(&mut self, before: &[u32]) {
        let after: Vec<HeadWaiter> = self.head.queue().collect();
        for (is, waiter) in after.into_iter().enumerate() {
            let state = &mut self.owners[waiter.owner_index as usize];
            let OwnerState::Waits { overtaken, .. } = state else {
                panic!("an owner that does not wait is in no queue");
            };
            let was = before
                .iter()
                .position(|&owner_index| owner_index == waiter.owner_index);
            let put_back = u8::from(Some(is) > was);
            assert_eq!(put_back, waiter.overtaken - *overtaken, "each is counted");
            *overtaken = waiter.overtaken;
        }
    }

    /// Requests `mode`, with this weight if it waits.
    fn request(&self, owner_index: u32, mode: Mode, weight: u32) -> Option<Self> {
        let mut next = self.clone();
        match self.owners[owner_index as usize] {
            OwnerState::Away => match next.head.acquire(owner_index, mode) {
                Some(slot) => next.owners[owner_index as usize] = OwnerState::Holds { mode, slot },
                None => next.wait(owner_index, None, mode, weight),
            },
            OwnerState::Holds { mode: held, slot } => {
                let wanted = held.supremum(mode);
                if wanted == held {
                    return None;
                }
                if next.head.convert(slot, wanted) {
                    next.owners[owner_index as usize] = OwnerState::Holds { mode: wanted, slot };
                } else {
                    next.wait(owner_index, Some((held, slot)), wanted, weight);
                }
            }
            OwnerState::Waits { .. } => return None,
        }
        Some(next)
    }

    /// Ends a hold, or a wait as a deadline, a cancellation or a detector does.
    fn end(&self, owner_index: u32) -> Option<Self> {
        let mut next = self.clone();
        match self.owners[owner_index as usize] {
            OwnerState::Away => return None,
            OwnerState::Holds { slot, .. } => {
                next.head.release(slot);
                next.owners[owner_index as usize] = OwnerState::Away;
            }
            OwnerState::Waits { held, .. } => {
                let ticket = ticket(owner_index);
                assert!(next.head.withdraw(WaitTicket {
                    owner_index,
                    ticket
                }));
                next.owners[owner_index as usize] = match held {
                    Some((mode, slot)) => OwnerState::Holds { mode, slot },
                    None => OwnerState::Away,
                };
            }
        }
        next.grant();
        if next.head.is_vacant() {
            next.head.reset();
        }
        Some(next)
    }

    /// Gives `heavy` more weight than all others.
    fn weigh(&self, heavy: u32) -> Self {
        let mut next = self.clone();
        let before = self.queue();
        let moved = next
            .head
            .reorder(|waiter| u32::from(waiter.owner_index == heavy));
        assert!(moved.iter().all(|wait| wait.owner_index == heavy));
        if moved.is_empty() {
            assert_eq!(before, next.queue());
        }
        next.count_overtaken(&before);
        next.grant();
        next
    }

    fn check(&self) {
        self.head.verify();
        let queue: Vec<HeadWaiter> = self.head.queue().collect();
        for waiter in &queue {
            let OwnerState::Waits {
                overtaken, held, ..
            } = self.owners[waiter.owner_index as usize]
            else {
                panic!("an owner that does not wait is in no queue");
            };
            assert_eq!(overtaken, waiter.overtaken);
            assert!(overtaken <= MAX_OVERTAKEN);
            assert!(held.is_none() || overtaken == 0, "a conversion was passed");
        }
        let waiting = self
            .owners
            .iter()
            .filter(|state| matches!(state, OwnerState::Waits { .. }));
        assert_eq!(waiting.count(), queue.len());
    }
}

/// Visits all reachable states, and returns their number.
fn explore(modes: &[Mode], most_states: usize) -> usize {
    let mut seen: HashSet<StateKey> = HashSet::new();
    let mut open = vec![HeadState::new()];
    seen.insert(open[0].key());
    while let Some(state) = open.pop() {
        let indexes = 0..OWNERS as u32;
        let requests = indexes
            .clone()
            .flat_map(|owner_index| modes.iter().map(move |&mode| (owner_index, mode)))
            .flat_map(|(owner_index, mode)| [0, 1].map(|weight| (owner_index, mode, weight)));
        let nexts = requests
            .filter_map(|(owner_index, mode, weight)| state.request(owner_index, mode, weight))
            .chain(
                indexes
                    .clone()
                    .filter_map(|owner_index| state.end(owner_index)),
            )
            .chain(indexes.map(|owner_index| state.weigh(owner_index)));
        for next in nexts {
            next.check();
            if seen.insert(next.key()) {
                open.push(next);
            }
        }
        assert!(seen.len() <= most_states, "there should not be so many");
    }
    seen.len()
}

#[test]
fn no_order_of_readers_and_writers_grants_a_conflict() {
    let states = explore(&[Mode::S, Mode::X], 1_000_000);
    println!("{states} states");
    assert!(states > 1_000);
}

#[test]
fn no_order_of_readers_writers_and_upgrades_grants_a_conflict() {
    let states = explore(&[Mode::IS, Mode::IX, Mode::X], 1_000_000);
    println!("{states} states");
    assert!(states > 1_000);
}

/// A stream of later requests, each heavier than the waiter.
#[test]
fn a_waiter_is_overtaken_only_up_to_its_maximum() {
    let mut head = LockHead::new(NAME);
    let mut holder = head.acquire(0, Mode::X).expect("no holder");
    head.enqueue(1, ticket(1), Mode::X, None);
    for (overtaken, owner_index) in (2..100).enumerate() {
        head.enqueue(owner_index, ticket(owner_index), Mode::X, None);
        head.reorder(|waiter| waiter.owner_index);
        head.release(holder);
        let mut granted = None;
        head.grant_waiters(|waiter, slot| granted = Some((waiter, slot)));
        head.verify();
        let (granted, slot) = granted.expect("a waiter");
        if granted.owner_index == 1 {
            assert_eq!(overtaken, usize::from(MAX_OVERTAKEN));
            return;
        }
        holder = slot;
    }
    panic!("it waited for ever");
}

/// A stream of later requests, each heavier than all waiters, behind queues of every length.
#[test]
fn a_waiter_behind_a_long_queue_is_overtaken_as_often_as_that_was_long() {
    for (ahead, bears) in [(0, 8), (8, 8), (9, 9), (20, 20), (255, 255), (300, 255)] {
        let mut head = LockHead::new(NAME);
        head.acquire(0, Mode::X).expect("no holder");
        let last = ahead + 1;
        for owner_index in 1..=last {
            head.enqueue(owner_index, ticket(owner_index), Mode::X, None);
        }
        for owner_index in last + 1..last + 320 {
            head.enqueue(owner_index, ticket(owner_index), Mode::X, None);
            head.reorder(|waiter| {
                if waiter.owner_index > last {
                    waiter.owner_index
                } else {
                    0
                }
            });
        }
        head.verify();
        let waiter = head.queue().find(|waiter| waiter.owner_index == last);
        assert_eq!(waiter.expect("it waits").overtaken, bears, "behind {ahead}");
    }
}
