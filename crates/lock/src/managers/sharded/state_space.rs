//! Every history of four owners at one name, weights and all.
//!
//! The states of a head that requests with weight and without, releases, refusals and new weights can lead to are visited,
//! each once; every step that can be taken from a state is taken. Contention-aware orders have let two
//! writers in before, in other systems, so nothing here is left to chance:
//!
//! * no two owners ever hold the name in modes that conflict, and nobody waits who could be granted
//!   (`LockHead::verify`, L1 and L4);
//! * a conversion is never passed by a new request, nor by a later conversion (L5);
//! * whoever waits is put behind later comers so many times at most, and then goes before all of them;
//! * what has been refused or released leaves the head as it would have been without.

use crate::{
    managers::latched::head::{HeadWaiter, LockHead, MAX_OVERTAKEN},
    mode::Mode,
    name::Name,
    owner::owner_table::WaitTicket,
};
use foxton_sync::park::Ticket;
use std::collections::HashSet;

const OWNERS: usize = 4;

/// Where one owner stands.
#[derive(Debug, Clone, Copy)]
enum OwnerState {
    /// Neither holds nor awaits.
    Away,
    /// In the line; if it converts, holding the first.
    Waits {
        held: Option<Mode>,
        wanted: Mode,
        slot: u32,
        overtaken: u8,
    },
    /// Holds.
    Holds { mode: Mode, slot: u32 },
}

/// A head, who stands where in it, and the line in order.
#[derive(Clone)]
struct HeadState {
    head: LockHead,
    owners: [OwnerState; OWNERS],
}

/// One of the line: what it holds, what it wants, how often it was overtaken, how much it weighs.
type WaiterKey = (Option<Mode>, Mode, u8, u32);

/// What makes two states one, whoever is who: the line, and what the others hold.
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
            OwnerState::Waits { held, wanted, .. } => {
                (held, wanted, waiter.overtaken, waiter.weight)
            }
            other => panic!("who does not wait is in the line: {other:?}"),
        };
        let holds = |state: &OwnerState| match state {
            OwnerState::Holds { mode, .. } => Some(*mode),
            _ => None,
        };
        let mut holders: Vec<Mode> = self.owners.iter().filter_map(holds).collect();
        holders.sort();
        (self.head.queue().map(waits).collect(), holders)
    }

    /// Takes over what the head granted.
    fn grant(&mut self) {
        let owners = &mut self.owners;
        self.head.grant_waiters(|waiter: HeadWaiter| {
            let state = &mut owners[waiter.owner_index as usize];
            assert!(
                matches!(state, OwnerState::Waits { wanted, .. } if *wanted == waiter.mode),
                "only who waits is granted, and what it waits for: {state:?}"
            );
            *state = OwnerState::Holds {
                mode: waiter.mode,
                slot: waiter.slot,
            };
        });
    }

    fn wait(&mut self, owner_index: u32, held: Option<(Mode, u32)>, wanted: Mode, weight: u32) {
        let slot = held.map(|held| held.1);
        let waiter = self
            .head
            .enqueue(owner_index, ticket(owner_index), wanted, slot);
        self.owners[owner_index as usize] = OwnerState::Waits {
            held: held.map(|held| held.0),
            wanted,
            slot: waiter.slot,
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

    /// Notes who was overtaken since the line was as it was `before`, and that each was counted.
    fn count_overtaken(&mut self, before: &[u32]) {
        let after: Vec<HeadWaiter> = self.head.queue().collect();
        for (is, waiter) in after.into_iter().enumerate() {
            let state = &mut self.owners[waiter.owner_index as usize];
            let OwnerState::Waits { overtaken, .. } = state else {
                panic!("who does not wait is not in the line");
            };
            let was = before
                .iter()
                .position(|&owner_index| owner_index == waiter.owner_index);
            let put_back = u8::from(Some(is) > was);
            assert_eq!(put_back, waiter.overtaken - *overtaken, "each is counted");
            *overtaken = waiter.overtaken;
        }
    }

    /// Asks for `mode`, with so much weight if it is to wait.
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
            OwnerState::Waits { held, slot, .. } => {
                let ticket = ticket(owner_index);
                assert!(next.head.withdraw(WaitTicket {
                    owner_index,
                    ticket
                }));
                next.owners[owner_index as usize] = match held {
                    Some(mode) => OwnerState::Holds { mode, slot },
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

    /// Gives `heavy` more weight than everybody else.
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
                panic!("who does not wait is not in the line");
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

/// Visits everything that can be reached, and says how many states that were.
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
fn no_order_of_readers_and_writers_lets_two_in_that_should_be_apart() {
    let states = explore(&[Mode::S, Mode::X], 1_000_000);
    println!("{states} states");
    assert!(states > 1_000);
}

#[test]
fn no_order_of_readers_writers_and_upgrades_does() {
    let states = explore(&[Mode::IS, Mode::IX, Mode::X], 1_000_000);
    println!("{states} states");
    assert!(states > 1_000);
}

/// A stream of others, each heavier than the one who waits, and each coming later.
#[test]
fn who_waits_is_overtaken_so_often_and_then_no_more() {
    let mut head = LockHead::new(NAME);
    let mut holder = head.acquire(0, Mode::X).expect("nobody is there");
    head.enqueue(1, ticket(1), Mode::X, None);
    for (overtaken, owner_index) in (2..100).enumerate() {
        head.enqueue(owner_index, ticket(owner_index), Mode::X, None);
        head.reorder(|waiter| waiter.owner_index);
        head.release(holder);
        let mut granted = None;
        head.grant_waiters(|waiter| granted = Some(waiter));
        head.verify();
        let granted = granted.expect("somebody waits");
        if granted.owner_index == 1 {
            assert_eq!(overtaken, usize::from(MAX_OVERTAKEN));
            return;
        }
        holder = granted.slot;
    }
    panic!("it waited for ever");
}

/// A stream of others, each heavier than all who wait, behind lines of every length.
#[test]
fn who_came_behind_a_long_line_is_overtaken_as_often_as_that_was_long() {
    for (ahead, bears) in [(0, 8), (8, 8), (9, 9), (20, 20), (255, 255), (300, 255)] {
        let mut head = LockHead::new(NAME);
        head.acquire(0, Mode::X).expect("nobody is there");
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
