//! Waiters of one name, in their order. Plain data, changed under a latch.
//!
//! A hot name can have ten thousand waiters, and each of them comes, is granted or gives up under
//! the latch of the name. So no step visits all of them. A step learns what it needs to know about
//! many waiters from their *classes*: waiters of one class hold the same mode, or none, and wait
//! for the same mode. A name has few classes, most often one.
//!
//! # State
//!
//! Each waiter has an *order*, a number. Waiters go first whose order is lower. Conversions have
//! orders of their own, below all others.
//!
//! ```text
//! waiters   owner -> order, waiter                        found by owner
//! index     (class, order) -> owner                       found by class, first or last first
//! classes   (S: 2) (X: 5000)                              counted
//! ```
//!
//! # Invariants
//!
//! * I1  `waiters` and `index` have the same waiters, each owner once, and `classes` counts those
//!   of the index. A class has at least one waiter.
//! * I2  Orders are unique. Conversions have orders below `FIRST_NEW_ORDER`, other waiters from
//!   there on. So each conversion is before all other waiters.
//! * I3  A new waiter gets a higher order than any waiter of its kind has had, except at the front.
//!
//! # Why classes are enough
//!
//! Whether a waiter can be granted depends on the modes of the holders besides itself, and on the
//! modes of the waiters ahead of it. Take two waiters of one class. The holders besides one hold
//! the same modes, in the same numbers, as those besides the other. So if the first is blocked, the
//! later is, too, while nothing is released. A scan for grants therefore looks at one waiter of
//! each blocked class, and at those that it grants.
//!
//! # Steps
//!
//! | step | cost, for *w* waiters of *k* classes |
//! |---|---|
//! | `push`, `remove`, `move_forward` by one | log *w*, and *k* |
//! | `modes`, `count_conflicting` of the whole list | *k* |
//! | a scan for grants that grants *g* | (*g* + *k*) (*k* + log *w*) |
//! | `last_before`, `get` | log *w* |

use crate::{
    mode::{Mode, Set},
    owner::owner_table::WaitTicket,
};
use hashbrown::HashTable;
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// Order in which waiters of one name are granted, if they conflict.
pub(crate) type WaitOrder = i64;

/// First order of waiters that are not conversions (I2). A front that moves forward by one with
/// each wait reaches the conversions after 2^62 of them.
const FIRST_NEW_ORDER: WaitOrder = 0;
const FIRST_CONVERSION_ORDER: WaitOrder = WaitOrder::MIN;
/// Capacity above which memory is freed when the list becomes empty.
const MAX_KEPT_WAITERS: usize = 256;

/// Waiter as its manager keeps it.
pub(crate) trait Waiter: Copy {
    fn wait_ticket(&self) -> WaitTicket;

    /// Returns the mode that it will hold once granted.
    fn mode(&self) -> Mode;

    /// Returns the mode that a conversion holds; empty for a new request.
    fn held(&self) -> Set;
}

/// Class of waiters: the mode that each holds, and the mode that it waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WaitClass {
    held: u8,
    mode: Mode,
}

impl WaitClass {
    pub(crate) fn of(waiter: &impl Waiter) -> Self {
        Self {
            held: waiter.held().bits(),
            mode: waiter.mode(),
        }
    }

    pub(crate) fn mode(self) -> Mode {
        self.mode
    }

    fn is_conversion(self) -> bool {
        self.held != 0
    }
}

#[derive(Debug, Clone, Copy)]
struct OrderedWaiter<W> {
    order: WaitOrder,
    waiter: W,
}

/// The waiters of one name.
#[derive(Debug, Clone)]
pub(crate) struct WaitList<W> {
    waiters: HashTable<OrderedWaiter<W>>,
    index: BTreeMap<(WaitClass, WaitOrder), u32>,
    classes: SmallVec<[(WaitClass, usize); 2]>,
    conversions: usize,
    next_order: WaitOrder,
    next_conversion_order: WaitOrder,
    #[cfg(test)]
    pub(crate) steps: std::cell::Cell<u64>,
}

impl<W> Default for WaitList<W> {
    fn default() -> Self {
        Self {
            waiters: HashTable::new(),
            index: BTreeMap::new(),
            classes: SmallVec::new(),
            conversions: 0,
            next_order: FIRST_NEW_ORDER,
            next_conversion_order: FIRST_CONVERSION_ORDER,
            #[cfg(test)]
            steps: std::cell::Cell::new(0),
        }
    }
}

/// Spreads owner indexes over the table: its low bits choose the bucket, its high bits the tag.
fn hash_of(owner_index: u32) -> u64 {
    u64::from(owner_index).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

impl<W: Waiter> WaitList<W> {
    pub(crate) fn len(&self) -> usize {
        self.waiters.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Returns the number of conversions.
    pub(crate) fn conversions(&self) -> usize {
        self.conversions
    }

    /// Counts waiters that a step looked at, for tests.
    #[inline]
    fn count_steps(&self, _count: usize) {
        #[cfg(test)]
        self.steps.set(self.steps.get() + _count as u64);
    }

    /// Returns the waiter of an owner, and its order.
    pub(crate) fn get_owner(&self, owner_index: u32) -> Option<(WaitOrder, W)> {
        self.count_steps(1);
        let is_it = |found: &OrderedWaiter<W>| found.owner_index() == owner_index;
        let found = self.waiters.find(hash_of(owner_index), is_it)?;
        Some((found.order, found.waiter))
    }

    /// Returns a waiter and its order, if it is in the list.
    pub(crate) fn get(&self, wait: WaitTicket) -> Option<(WaitOrder, W)> {
        let found = self.get_owner(wait.owner_index)?;
        (found.1.wait_ticket() == wait).then_some(found)
    }

    fn get_mut(&mut self, owner_index: u32) -> Option<&mut OrderedWaiter<W>> {
        let is_it = |found: &OrderedWaiter<W>| found.owner_index() == owner_index;
        self.waiters.find_mut(hash_of(owner_index), is_it)
    }

    /// Changes a waiter; not its owner, its ticket or its modes.
    pub(crate) fn update(&mut self, wait: WaitTicket, update: impl FnOnce(&mut W)) -> bool {
        let found = self.get_mut(wait.owner_index);
        let found = found.filter(|found| found.waiter.wait_ticket() == wait);
        found.map(|found| update(&mut found.waiter)).is_some()
    }

    /// Adds a waiter behind all others of its kind (I3).
    pub(crate) fn push(&mut self, waiter: W) {
        let next = match waiter.held().is_empty() {
            true => &mut self.next_order,
            false => &mut self.next_conversion_order,
        };
        let order = *next;
        *next += 1;
        self.insert(order, waiter);
    }

    /// Adds a waiter that is no conversion before all others, and returns its order.
    pub(crate) fn push_front(&mut self, waiter: W) -> WaitOrder {
        let first = self.classes().filter(|class| !class.is_conversion());
        let first = first.filter_map(|class| self.first_in(class)).min();
        let order = first.map_or(self.next_order, |(order, _)| order) - 1;
        self.insert(order, waiter);
        order
    }

    fn insert(&mut self, order: WaitOrder, waiter: W) {
        self.count_steps(1);
        let (class, owner_index) = (WaitClass::of(&waiter), waiter.wait_ticket().owner_index);
        let entry = OrderedWaiter { order, waiter };
        self.waiters
            .insert_unique(hash_of(owner_index), entry, |entry| {
                hash_of(entry.owner_index())
            });
        self.index.insert((class, order), owner_index);
        match self.classes.iter_mut().find(|(known, _)| *known == class) {
            Some((_, count)) => *count += 1,
            None => self.classes.push((class, 1)),
        }
        self.conversions += usize::from(class.is_conversion());
    }

    /// Removes a waiter, if it is in the list.
    pub(crate) fn remove(&mut self, wait: WaitTicket) -> Option<W> {
        self.count_steps(1);
        let is_it = |found: &OrderedWaiter<W>| found.waiter.wait_ticket() == wait;
        let found = self
            .waiters
            .find_entry(hash_of(wait.owner_index), is_it)
            .ok()?;
        let (OrderedWaiter { order, waiter }, _) = found.remove();
        let class = WaitClass::of(&waiter);
        self.index.remove(&(class, order));
        let at = self.classes.iter().position(|(known, _)| *known == class);
        let at = at.expect("I1: the class of a waiter is counted");
        self.classes[at].1 -= 1;
        if self.classes[at].1 == 0 {
            self.classes.remove(at);
        }
        self.conversions -= usize::from(class.is_conversion());
        if self.waiters.is_empty() && self.waiters.capacity() > MAX_KEPT_WAITERS {
            self.waiters = HashTable::new();
        }
        Some(waiter)
    }

    /// Returns the classes of the waiters, in no order.
    pub(crate) fn classes(&self) -> impl Iterator<Item = WaitClass> {
        self.classes.iter().map(|&(class, _)| class)
    }

    /// Returns the modes that are waited for.
    pub(crate) fn modes(&self) -> Set {
        union(self.classes())
    }

    /// Returns the modes ahead of a request that comes now.
    pub(crate) fn modes_ahead(&self, is_conversion: bool) -> Set {
        union(
            self.classes()
                .filter(|class| !is_conversion || class.is_conversion()),
        )
    }

    /// Returns the first waiter of a class: order and owner.
    fn first_in(&self, class: WaitClass) -> Option<(WaitOrder, u32)> {
        self.first_from(class, WaitOrder::MIN)
    }

    /// Returns the first waiter of a class from `order` on.
    fn first_from(&self, class: WaitClass, order: WaitOrder) -> Option<(WaitOrder, u32)> {
        self.count_steps(1);
        let range = (class, order)..=(class, WaitOrder::MAX);
        let found = self.index.range(range).next();
        found.map(|(&(_, order), &owner_index)| (order, owner_index))
    }

    /// Returns the last waiter of a class before `order`: order and owner.
    pub(crate) fn last_before(
        &self,
        class: WaitClass,
        order: WaitOrder,
    ) -> Option<(WaitOrder, u32)> {
        self.count_steps(1);
        let range = (class, WaitOrder::MIN)..(class, order);
        let found = self.index.range(range).next_back();
        found.map(|(&(_, order), &owner_index)| (order, owner_index))
    }

    /// Returns the waiter that is at this order now.
    fn known(&self, owner_index: u32) -> W {
        let (_, waiter) = self
            .get_owner(owner_index)
            .expect("I1: a waiter of the index");
        waiter
    }

    /// Returns up to `most` waiters before `order` that conflict with `mode`, first come first.
    pub(crate) fn conflicting_before(
        &self,
        order: WaitOrder,
        mode: Mode,
        most: usize,
    ) -> SmallVec<[W; 4]> {
        let blocks = |class: &WaitClass| !class.mode.compatible(mode);
        let mut scan = WaitScan::over(self, self.classes().filter(blocks));
        let mut found = SmallVec::new();
        while found.len() < most
            && let Some((at, waiter)) = scan.next(self)
            && at < order
        {
            found.push(waiter);
            scan.pass(self, at, &waiter);
        }
        found
    }

    /// Returns the number of waiters before `order` that conflict with `mode`. If some waiter has
    /// left from between others, or several classes are mixed, it may be less than the result.
    pub(crate) fn count_conflicting(&self, order: WaitOrder, mode: Mode) -> usize {
        let blocking = self
            .classes
            .iter()
            .filter(|(class, _)| !class.mode.compatible(mode));
        let before = blocking.map(|&(class, count)| {
            let Some((first, _)) = self.first_in(class).filter(|&(first, _)| first < order) else {
                return 0;
            };
            let (last, _) = self
                .last_before(class, WaitOrder::MAX)
                .expect("I1: a class has a waiter");
            match last < order {
                true => count,
                false => (count - 1).min(usize::try_from(order - first).unwrap_or(usize::MAX)),
            }
        });
        before.sum()
    }

    /// Returns the order that a request would have that comes now.
    pub(crate) fn order_of_next(&self, is_conversion: bool) -> WaitOrder {
        match is_conversion {
            true => self.next_conversion_order,
            false => self.next_order,
        }
    }

    /// Begins a scan of all waiters, to grant some.
    pub(crate) fn scan(&self) -> WaitScan {
        WaitScan::over(self, self.classes())
    }

    /// Returns all waiters with their orders, not sorted.
    pub(crate) fn unsorted(&self) -> impl Iterator<Item = (WaitOrder, &W)> {
        self.waiters
            .iter()
            .map(|found| (found.order, &found.waiter))
    }

    /// Returns all waiters, first come first. Sorts them: not for a hot path.
    pub(crate) fn sorted(&self) -> Vec<W> {
        self.count_steps(self.len());
        let mut waiters: Vec<(WaitOrder, W)> = self.unsorted().map(|(at, w)| (at, *w)).collect();
        waiters.sort_unstable_by_key(|&(order, _)| order);
        waiters.into_iter().map(|(_, waiter)| waiter).collect()
    }

    /// Moves a waiter that is no conversion forward, past those directly before it for which
    /// `may_pass` is true, and calls `passed` for each of them. Returns true if it moved.
    pub(crate) fn move_forward(
        &mut self,
        wait: WaitTicket,
        may_pass: impl Fn(&W) -> bool,
        passed: impl Fn(&mut W),
    ) -> bool {
        let Some((order, _)) = self.get(wait) else {
            return false;
        };
        // Each waiter takes the order of the one before it that moves back.
        let mut to = order;
        while let Some((before, owner_index)) = self.new_before(to) {
            let other = self.known(owner_index);
            if !may_pass(&other) {
                break;
            }
            self.set_order(owner_index, to);
            let entry = self.get_mut(owner_index).expect("it is in the list");
            passed(&mut entry.waiter);
            to = before;
        }
        self.set_order(wait.owner_index, to);
        to != order
    }

    /// Shows all waiters that are no conversions, first come first, to `rearrange`. It may change
    /// them and their order, and returns true if it changed the order. Visits all waiters: not for
    /// a hot path.
    pub(crate) fn rearrange(&mut self, rearrange: impl FnOnce(&mut [W]) -> bool) {
        let is_new = |waiter: &W| waiter.held().is_empty();
        let mut new: Vec<(WaitOrder, W)> = self.unsorted().map(|(at, w)| (at, *w)).collect();
        new.retain(|(_, waiter)| is_new(waiter));
        new.sort_unstable_by_key(|&(order, _)| order);
        let (orders, mut waiters): (Vec<WaitOrder>, Vec<W>) = new.into_iter().unzip();
        let moved = rearrange(&mut waiters);
        if moved {
            self.index.retain(|(class, _), _| class.is_conversion());
        }
        for (order, waiter) in orders.into_iter().zip(waiters) {
            let owner_index = waiter.wait_ticket().owner_index;
            let entry = self.get_mut(owner_index).expect("it is in the list");
            entry.waiter = waiter;
            if moved {
                entry.order = order;
                self.index
                    .insert((WaitClass::of(&waiter), order), owner_index);
            }
        }
    }

    /// Returns the waiter directly before `order` that is no conversion.
    fn new_before(&self, order: WaitOrder) -> Option<(WaitOrder, u32)> {
        let classes = self.classes().filter(|class| !class.is_conversion());
        let last = classes.filter_map(|class| self.last_before(class, order));
        last.max()
    }

    /// Gives a waiter another order. Until the caller is done, two may have the same.
    fn set_order(&mut self, owner_index: u32, order: WaitOrder) {
        let entry = self.get_mut(owner_index).expect("it is in the list");
        let former = std::mem::replace(&mut entry.order, order);
        let class = WaitClass::of(&entry.waiter);
        if self.index.get(&(class, former)) == Some(&owner_index) {
            self.index.remove(&(class, former));
        }
        self.index.insert((class, order), owner_index);
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let index = self.index.len() * size_of::<((WaitClass, WaitOrder), u32)>();
        self.waiters.allocation_size() + index
    }

    /// Panics if an invariant is broken.
    pub(crate) fn verify(&self) {
        let mut count = 0;
        for (&(class, order), &owner_index) in &self.index {
            let (found, waiter) = self
                .get_owner(owner_index)
                .expect("I1: it is by owner, too");
            assert_eq!((found, WaitClass::of(&waiter)), (order, class), "I1");
            assert_eq!(class.is_conversion(), order < WaitOrder::MIN / 2, "I2");
            count += 1;
        }
        assert_eq!(count, self.len(), "I1");
        let mut orders: Vec<WaitOrder> = self.unsorted().map(|(order, _)| order).collect();
        orders.sort_unstable();
        assert!(orders.windows(2).all(|pair| pair[0] < pair[1]), "I2");
        for &(class, count) in &self.classes {
            let same = self.index.keys().filter(|(known, _)| *known == class);
            assert!(count > 0 && same.count() == count, "I1");
        }
        let counted: usize = self.classes.iter().map(|(_, count)| count).sum();
        assert_eq!(counted, self.len(), "I1");
    }
}

impl<W: Waiter> OrderedWaiter<W> {
    fn owner_index(&self) -> u32 {
        self.waiter.wait_ticket().owner_index
    }
}

fn union(classes: impl Iterator<Item = WaitClass>) -> Set {
    classes.fold(Set::NONE, |all, class| all.union(class.mode.set()))
}

/// Scan of the waiters in their order, class by class.
///
/// `next` returns a waiter. Then the caller passes it, or its whole class, or removes it from the
/// list and says so.
pub(crate) struct WaitScan {
    /// The next waiter of each class that is left: class, order, owner.
    next: SmallVec<[(WaitClass, WaitOrder, u32); 4]>,
}

impl WaitScan {
    fn over<W: Waiter>(list: &WaitList<W>, classes: impl Iterator<Item = WaitClass>) -> Self {
        let next = classes.filter_map(|class| {
            let (order, owner_index) = list.first_in(class)?;
            Some((class, order, owner_index))
        });
        Self {
            next: next.collect(),
        }
    }

    /// Returns the first waiter that is left, and its order.
    pub(crate) fn next<W: Waiter>(&self, list: &WaitList<W>) -> Option<(WaitOrder, W)> {
        let first = self.next.iter().min_by_key(|&&(_, order, _)| order)?;
        Some((first.1, list.known(first.2)))
    }

    /// Passes the waiter at `order`, which `next` returned, or which was removed since.
    pub(crate) fn pass<W: Waiter>(&mut self, list: &WaitList<W>, order: WaitOrder, waiter: &W) {
        let class = WaitClass::of(waiter);
        let at = self.next.iter().position(|&(known, ..)| known == class);
        let at = at.expect("the class of the waiter is left");
        match list.first_from(class, order + 1) {
            Some((order, owner_index)) => self.next[at] = (class, order, owner_index),
            None => drop(self.next.remove(at)),
        }
    }

    /// Passes all waiters of a class, because none can be granted if the first cannot.
    pub(crate) fn pass_class(&mut self, waiter: &impl Waiter) {
        let class = WaitClass::of(waiter);
        self.next.retain(|&mut (known, ..)| known != class);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use foxton_sync::park::Ticket;
    use foxton_sync::worker::{Worker, Workers};

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct PlainWaiter {
        owner_index: u32,
        held: Set,
        mode: Mode,
    }

    impl Waiter for PlainWaiter {
        fn wait_ticket(&self) -> WaitTicket {
            let ticket = Ticket::from_sequence(1);
            WaitTicket {
                owner_index: self.owner_index,
                ticket,
            }
        }

        fn mode(&self) -> Mode {
            self.mode
        }

        fn held(&self) -> Set {
            self.held
        }
    }

    fn waiter(owner_index: u32, held: Set, mode: Mode) -> PlainWaiter {
        PlainWaiter {
            owner_index,
            held,
            mode,
        }
    }

    const MODES: [Mode; 5] = [Mode::IS, Mode::IX, Mode::S, Mode::SIX, Mode::X];

    /// Grants by the plain rule: each waiter in order, unless a holder or an earlier waiter
    /// conflicts.
    fn granted_plainly(waiters: &[PlainWaiter], held: Set) -> Vec<u32> {
        let (mut held, mut ahead, mut granted) = (held, Set::NONE, Vec::new());
        for waiter in waiters {
            if waiter.mode.conflicts().intersects(held.union(ahead)) {
                ahead = ahead.union(waiter.mode.set());
            } else {
                held = held.union(waiter.mode.set());
                granted.push(waiter.owner_index);
            }
        }
        granted
    }

    fn granted_by_scan(list: &WaitList<PlainWaiter>, held: Set) -> Vec<u32> {
        let (mut held, mut ahead, mut granted) = (held, Set::NONE, Vec::new());
        let mut scan = list.scan();
        while let Some((order, waiter)) = scan.next(list) {
            if waiter.mode.conflicts().intersects(held.union(ahead)) {
                ahead = ahead.union(waiter.mode.set());
                scan.pass_class(&waiter);
            } else {
                held = held.union(waiter.mode.set());
                granted.push(waiter.owner_index);
                scan.pass(list, order, &waiter);
            }
        }
        granted
    }

    /// Plays random changes on a list and on a plain vector.
    fn play(worker: &Worker) {
        let mut list = WaitList::default();
        let mut plain: Vec<PlainWaiter> = Vec::new();
        for next in 0..400 {
            let mode = MODES[worker.random_below(5) as usize];
            let at = worker.random_below(plain.len() as u64 + 1) as usize;
            let conversions = plain.iter().filter(|w| !w.held.is_empty()).count();
            match worker.random_below(6) {
                0 => {
                    let new = waiter(next, Mode::IS.set(), mode);
                    list.push(new);
                    plain.insert(conversions, new);
                }
                1 | 2 => {
                    list.push(waiter(next, Set::NONE, mode));
                    plain.push(waiter(next, Set::NONE, mode));
                }
                3 => {
                    list.push_front(waiter(next, Set::NONE, mode));
                    plain.insert(conversions, waiter(next, Set::NONE, mode));
                }
                4 if at < plain.len() => {
                    let removed = plain.remove(at);
                    assert_eq!(list.remove(removed.wait_ticket()), Some(removed));
                    assert_eq!(list.remove(removed.wait_ticket()), None);
                }
                5 if at < plain.len() && at >= conversions => {
                    let to = (conversions..at).rev();
                    let to = to
                        .take_while(|&to| !plain[to].owner_index.is_multiple_of(5))
                        .last();
                    let to = to.unwrap_or(at);
                    let wait = plain[at].wait_ticket();
                    let moved = list.move_forward(wait, |w| w.owner_index % 5 != 0, |_| {});
                    assert_eq!(moved, to != at);
                    plain[to..=at].rotate_right(1);
                }
                _ => {}
            }
            list.verify();
            assert_eq!(list.sorted(), plain);
            for held in [Set::NONE, Mode::IS.set(), Mode::S.set(), Mode::IX.set()] {
                let expected = granted_plainly(&plain, held);
                assert_eq!(granted_by_scan(&list, held), expected);
            }
            let Some(last) = plain.last() else {
                continue;
            };
            let (order, _) = list.get(last.wait_ticket()).expect("it waits");
            let ahead = plain[..plain.len() - 1].iter();
            let ahead: Vec<_> = ahead
                .filter(|w| !w.mode.compatible(mode))
                .copied()
                .collect();
            let most = worker.random_below(6) as usize;
            let found = list.conflicting_before(order, mode, most);
            assert_eq!(found[..], ahead[..most.min(ahead.len())]);
            assert!(list.count_conflicting(order, mode) >= ahead.len());
        }
    }

    #[test]
    fn a_list_agrees_with_a_plain_one() {
        let worker = Workers::with_seed(5).worker();
        (0..100).for_each(|_| play(&worker));
    }

    #[test]
    fn waiters_that_came_in_turn_are_counted_exactly() {
        let mut list = WaitList::default();
        (0..100).for_each(|next| list.push(waiter(next, Set::NONE, Mode::X)));
        for ahead in 0..100 {
            let wait = waiter(ahead, Set::NONE, Mode::X).wait_ticket();
            let (order, _) = list.get(wait).expect("it waits");
            assert_eq!(list.count_conflicting(order, Mode::S), ahead as usize);
        }
        assert_eq!(
            list.count_conflicting(list.order_of_next(false), Mode::X),
            100
        );
    }
}
