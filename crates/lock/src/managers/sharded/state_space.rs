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
    managers::latched::head::{HeadWaiter, LockHead, OVERTAKEN_AT_MOST},
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
    WaiterKey {
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

fn ticket(place: u32) -> Ticket {
    Ticket::from_sequence(u64::from(place) + 1)
}

impl HeadState {
    fn new() -> Self {
        Self {
            head: LockHead::new(NAME),
            owners: [OwnerState::Away; OWNERS],
        }
    }

    fn key(&self) -> StateKey {
        let waits = |waiter: HeadWaiter| match self.owners[waiter.place as usize] {
            OwnerState::WaiterKey { held, wanted, .. } => {
                (held, wanted, waiter.overtaken, waiter.weight)
            }
            other => panic!("who does not wait is in the line: {other:?}"),
        };
        let holds = |stands: &OwnerState| match stands {
            OwnerState::Holds { mode, .. } => Some(*mode),
            _ => None,
        };
        let mut holders: Vec<Mode> = self.owners.iter().filter_map(holds).collect();
        holders.sort();
        (self.head.line().map(waits).collect(), holders)
    }

    /// Takes over what the head granted.
    fn grant(&mut self) {
        let owners = &mut self.owners;
        self.head.regrant(|waiter: HeadWaiter| {
            let stands = &mut owners[waiter.place as usize];
            assert!(
                matches!(stands, OwnerState::WaiterKey { wanted, .. } if *wanted == waiter.mode),
                "only who waits is granted, and what it waits for: {stands:?}"
            );
            *stands = OwnerState::Holds {
                mode: waiter.mode,
                slot: waiter.slot,
            };
        });
    }

    fn wait(&mut self, place: u32, held: Option<(Mode, u32)>, wanted: Mode, weight: u32) {
        let slot = held.map(|held| held.1);
        let waiter = self.head.enqueue(place, ticket(place), wanted, slot);
        self.owners[place as usize] = OwnerState::WaiterKey {
            held: held.map(|held| held.0),
            wanted,
            slot: waiter.slot,
            overtaken: 0,
        };
        if held.is_none() {
            let before = self.line();
            let moved = self.head.put_forward(waiter.wait(), weight);
            self.count_overtaken(&before);
            if moved {
                self.grant();
            }
        }
    }

    fn line(&self) -> Vec<u32> {
        self.head.line().map(|waiter| waiter.place).collect()
    }

    /// Notes who was overtaken since the line was as it was `before`, and that each was counted.
    fn count_overtaken(&mut self, before: &[u32]) {
        let after: Vec<HeadWaiter> = self.head.line().collect();
        for (is, waiter) in after.into_iter().enumerate() {
            let stands = &mut self.owners[waiter.place as usize];
            let OwnerState::WaiterKey { overtaken, .. } = stands else {
                panic!("who does not wait is not in the line");
            };
            let was = before.iter().position(|&place| place == waiter.place);
            let put_back = u8::from(Some(is) > was);
            assert_eq!(put_back, waiter.overtaken - *overtaken, "each is counted");
            *overtaken = waiter.overtaken;
        }
    }

    /// Asks for `mode`, with so much weight if it is to wait.
    fn request(&self, place: u32, mode: Mode, weight: u32) -> Option<Self> {
        let mut next = self.clone();
        match self.owners[place as usize] {
            OwnerState::Away => match next.head.acquire(place, mode) {
                Some(slot) => next.owners[place as usize] = OwnerState::Holds { mode, slot },
                None => next.wait(place, None, mode, weight),
            },
            OwnerState::Holds { mode: held, slot } => {
                let wanted = held.supremum(mode);
                if wanted == held {
                    return None;
                }
                if next.head.convert(slot, wanted) {
                    next.owners[place as usize] = OwnerState::Holds { mode: wanted, slot };
                } else {
                    next.wait(place, Some((held, slot)), wanted, weight);
                }
            }
            OwnerState::WaiterKey { .. } => return None,
        }
        Some(next)
    }

    /// Ends a hold, or a wait as a deadline, a cancellation or a detector does.
    fn end(&self, place: u32) -> Option<Self> {
        let mut next = self.clone();
        match self.owners[place as usize] {
            OwnerState::Away => return None,
            OwnerState::Holds { slot, .. } => {
                next.head.release(slot);
                next.owners[place as usize] = OwnerState::Away;
            }
            OwnerState::WaiterKey { held, slot, .. } => {
                let ticket = ticket(place);
                assert!(next.head.withdraw(WaitTicket { place, ticket }));
                next.owners[place as usize] = match held {
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
        let before = self.line();
        let moved = next
            .head
            .rearrange(|waiter| u32::from(waiter.place == heavy));
        assert!(moved.iter().all(|wait| wait.place == heavy));
        if moved.is_empty() {
            assert_eq!(before, next.line());
        }
        next.count_overtaken(&before);
        next.grant();
        next
    }

    fn check(&self) {
        self.head.verify();
        let line: Vec<HeadWaiter> = self.head.line().collect();
        for waiter in &line {
            let OwnerState::WaiterKey {
                overtaken, held, ..
            } = self.owners[waiter.place as usize]
            else {
                panic!("who does not wait is not in the line");
            };
            assert_eq!(overtaken, waiter.overtaken);
            assert!(overtaken <= OVERTAKEN_AT_MOST);
            assert!(held.is_none() || overtaken == 0, "a conversion was passed");
        }
        let waiting = self
            .owners
            .iter()
            .filter(|stands| matches!(stands, OwnerState::WaiterKey { .. }));
        assert_eq!(waiting.count(), line.len());
    }
}

/// Visits everything that can be reached, and says how many states that were.
fn explore(modes: &[Mode], most_states: usize) -> usize {
    let mut seen: HashSet<StateKey> = HashSet::new();
    let mut open = vec![HeadState::new()];
    seen.insert(open[0].key());
    while let Some(state) = open.pop() {
        let places = 0..OWNERS as u32;
        let requests = places
            .clone()
            .flat_map(|place| modes.iter().map(move |&mode| (place, mode)))
            .flat_map(|(place, mode)| [0, 1].map(|weight| (place, mode, weight)));
        let nexts = requests
            .filter_map(|(place, mode, weight)| state.request(place, mode, weight))
            .chain(places.clone().filter_map(|place| state.end(place)))
            .chain(places.map(|place| state.weigh(place)));
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
    for (overtaken, place) in (2..100).enumerate() {
        head.enqueue(place, ticket(place), Mode::X, None);
        head.rearrange(|waiter| waiter.place);
        head.release(holder);
        let mut granted = None;
        head.regrant(|waiter| granted = Some(waiter));
        head.verify();
        let granted = granted.expect("somebody waits");
        if granted.place == 1 {
            assert_eq!(overtaken, usize::from(OVERTAKEN_AT_MOST));
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
        for place in 1..=last {
            head.enqueue(place, ticket(place), Mode::X, None);
        }
        for place in last + 1..last + 320 {
            head.enqueue(place, ticket(place), Mode::X, None);
            head.rearrange(|waiter| if waiter.place > last { waiter.place } else { 0 });
        }
        head.verify();
        let waiter = head.line().find(|waiter| waiter.place == last);
        assert_eq!(waiter.expect("it waits").overtaken, bears, "behind {ahead}");
    }
}
